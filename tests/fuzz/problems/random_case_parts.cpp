// SPDX-License-Identifier: Apache-2.0
// What random cases of several ops share.
#include <algorithm>
#include <numeric>

#include "fuzz/problems/random_case.h"

namespace quire::test {
namespace {

using nlohmann::json;

std::string random_mask_part(Draw& draw) {
  const std::string size = ":" + std::to_string(draw.pick({1, 2, 3, 5, 8, 15, 16, 17, 33, 64},
                                                          {1, 2, 5, 16, 63, 64, 65, 200}));
  const std::string kind =
      draw.pick<const char*>({"causal", "full", "tree", "sliding_window", "sliding_window_causal",
                              "chunked", "chunked_causal", "key_intervals"});
  if (kind == "key_intervals") return random_key_intervals(draw);
  const bool has_size = kind != "causal" && kind != "full" && kind != "tree";
  return has_size ? kind + size : kind;
}

}  // namespace

std::string random_key_intervals(Draw& draw) {
  return draw.pick<const char*>({"key_intervals", "key_intervals:hostile",
                                 "key_intervals:documents", "key_intervals:spans",
                                 "key_intervals:ranks"});
}

const char* random_float(Draw& draw) {
  return draw.pick<const char*>({"bf16", "bf16", "f16", "f32"});
}

std::int64_t RandomLengths::tokens() const {
  return std::accumulate(added.begin(), added.end(), std::int64_t{0});
}

RandomLengths random_lengths(Draw& draw, std::int64_t max_new, std::int64_t max_cached) {
  RandomLengths lengths;
  // One problem in many has keys beyond a tile's.
  const bool is_long = !draw.is_small() || draw.one_in(24);
  const std::int64_t batch = draw.one_in(64)   ? 0
                             : draw.is_small() ? draw.between(1, 3)
                                               : draw.between(1, 5);
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t added = draw.pick<std::int64_t>({0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 17},
                                                       {0, 1, 1, 2, 7, 8, 9, 31, 33, 70});
    const std::int64_t cached =
        is_long ? draw.pick<std::int64_t>({0, 0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 300, 700})
                : draw.pick<std::int64_t>({0, 0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 23, 31, 32, 33});
    lengths.added.push_back(std::min(added, max_new));
    lengths.cached.push_back(
        std::min(cached, draw.is_small() ? std::min<std::int64_t>(max_cached, 300) : max_cached));
  }
  return lengths;
}

void add_hole(Draw& draw, const RandomLengths& lengths, json& cache) {
  const auto page_size = cache["page_size"].get<std::int64_t>();
  cache.erase("unassigned");
  if (lengths.added.empty()) return;
  const std::int64_t pages = (lengths.added[0] + lengths.cached[0] + page_size - 1) / page_size;
  if (pages == 0) return;
  cache["unassigned"] = json::array({json::array({0, draw.below(pages)})});
}

void add_keys(Draw& draw, json& object) {
  json& lengths = object["lengths"];
  json keys = json::array();
  for (std::size_t b = 0; b < lengths["new"].size(); ++b) {
    const auto cached = lengths["cached"][b].get<std::int64_t>();
    const auto all = cached + lengths["new"][b].get<std::int64_t>();
    keys.push_back(draw.pick<std::int64_t>({0, cached, cached, all, all + 9, draw.below(all + 1)}));
  }
  lengths["keys"] = keys;
  object["cache"].erase("unassigned");
}

void add_pages(Draw& draw, const RandomLengths& lengths, json& cache) {
  const std::int64_t page_size = draw.pick<std::int64_t>({1, 2, 3, 4, 5, 7, 8, 12, 16, 16, 32},
                                                         {1, 2, 3, 8, 16, 16, 48, 64, 128, 256});
  cache["page_size"] = page_size;
  cache["layers"] = 1 + draw.below(3);
  cache["page_order"] = draw.pick<const char*>({"shuffled", "shuffled", "identity", "reversed"});
  if (draw.one_in(3)) cache["order"] = "hnd";
  cache["spare_columns"] = draw.below(4);
  json holes = json::array();
  for (std::size_t b = 0; b < lengths.added.size() && draw.one_in(3); ++b) {
    const std::int64_t columns = (lengths.added[b] + lengths.cached[b] + page_size - 1) / page_size;
    if (columns > 0) holes.push_back({b, draw.below(columns)});
  }
  if (!holes.empty()) cache["unassigned"] = holes;
}

json random_head_cache(Draw& draw, const RandomLengths& lengths, std::int64_t head_dim,
                       std::initializer_list<int> granularities) {
  json cache{{"head_dim", head_dim},
             {"kv_heads", 1 + draw.below(3)},
             {"dtype", draw.pick<const char*>({"bf16", "bf16", "f16", "f32", "fp8_e4m3", "fp8_e4m3",
                                               "fp8_e5m2", "i8"})}};
  const bool is_coded = cache["dtype"] == "i8" || cache["dtype"] == "fp8_e4m3";
  if (cache["dtype"] == "i8" || (is_coded && draw.one_in(2))) {
    cache["row_format"] = "scaled";
    cache["scale_dtype"] = draw.pick<const char*>({"f32", "f32", "f16", "bf16"});
    cache["scales"] = draw.pick<const char*>({"dynamic", "dynamic", "static", "own_table"});
    if (draw.one_in(2))
      cache["granularity"] = std::min<std::int64_t>(head_dim, draw.pick(granularities));
  }
  if (draw.one_in(4)) cache["split"] = true;
  add_pages(draw, lengths, cache);
  return cache;
}

json random_latent_cache(Draw& draw, const RandomLengths& lengths) {
  json cache{{"latent", draw.pick({1, 4, 7, 8, 16, 17, 24, 32, 33, 64, 136}, {32, 64, 136, 512})},
             {"rope", draw.pick({2, 2, 4, 6, 8, 16}, {2, 8, 64})}};
  const std::string format =
      draw.pick<const char*>({"uniform", "uniform", "mla_fp8_token", "mla_fp8_block"});
  cache["row_format"] = format;
  if (format == "uniform") {
    cache["dtype"] = draw.pick<const char*>({"f32", "f16", "bf16", "bf16", "fp8_e4m3"});
  } else {
    cache["rope_dtype"] = draw.pick<const char*>({"bf16", "bf16", "f16", "f32"});
  }
  if (format == "mla_fp8_block") cache["granularity"] = draw.pick({1, 3, 8, 16, 128}, {8, 32, 128});
  add_pages(draw, lengths, cache);
  cache.erase("order");  // one head: both orders are one
  return cache;
}

void use_power_scales(Draw& draw, json& cache) {
  if (cache.contains("latent")) {
    cache["row_format"] = "mla_fp8_e8m0";
    cache.erase("dtype");
    if (!cache.contains("rope_dtype")) cache["rope_dtype"] = "bf16";
    cache["granularity"] = draw.pick({1, 3, 8, 16, 64}, {8, 64, 64});
  } else {
    if (!cache["dtype"].get<std::string>().starts_with("fp8")) return;
    cache["row_format"] = "scaled";
    cache["scale_dtype"] = "e8m0";
  }
  cache["scales"] =
      draw.pick<const char*>({"dynamic", "static", "own_table", "page_end", "page_end"});
  if (cache["scales"] == "page_end") cache.erase("order"), cache.erase("split");
}

void use_int4(Draw& draw, json& cache) {
  if (!cache.contains("head_dim") || cache["head_dim"].get<std::int64_t>() % 2 != 0) return;
  for (const char* other : {"dtype", "scales", "poison_number"}) cache.erase(other);
  cache["granularity"] = draw.pick({32, 64});
  cache["scale_dtype"] = draw.pick<const char*>({"f16", "f16", "bf16", "f32"});
  if (draw.one_in(4)) {
    cache["dtype"] = "i4";
    cache["row_format"] = "scaled";
    cache["scales"] = draw.pick<const char*>({"dynamic", "static", "own_table"});
  } else {
    cache["row_format"] = "int4";
    cache["zeros"] = draw.one_in(2);
  }
}

void add_mask(Draw& draw, const RandomLengths& lengths, json& object) {
  std::string text = draw.one_in(3) ? "causal" : random_mask_part(draw);
  for (int part = 0; part < 3 && draw.one_in(3); ++part) {
    text += draw.pick<const char*>({" & ", " | "}) + random_mask_part(draw);
  }
  object["mask"] = text;
  const bool takes_blind_tokens =
      text.find("tree") != std::string::npos || text.find("key_intervals") != std::string::npos;
  if (!takes_blind_tokens || lengths.tokens() == 0) return;
  object["blind_tokens"] = json::array({draw.below(lengths.tokens())});
}

}  // namespace quire::test
