// SPDX-License-Identifier: Apache-2.0
// What random cases of several ops share.
#include <numeric>

#include "random_case.h"

namespace quire::test {
namespace {

using nlohmann::json;

std::string random_mask_part(RandomChoice& choice) {
  const std::string size = ":" + std::to_string(choice.pick({1, 2, 5, 16, 63, 64, 65, 200}));
  const std::string kind =
      choice.pick<const char*>({"causal", "full", "tree", "sliding_window", "sliding_window_causal",
                                "chunked", "chunked_causal"});
  const bool has_size = kind != "causal" && kind != "full" && kind != "tree";
  return has_size ? kind + size : kind;
}

}  // namespace

const char* random_float(RandomChoice& choice) {
  return choice.pick<const char*>({"bf16", "bf16", "f16", "f32"});
}

std::int64_t RandomLengths::tokens() const {
  return std::accumulate(added.begin(), added.end(), std::int64_t{0});
}

RandomLengths random_lengths(RandomChoice& choice, std::int64_t max_new, std::int64_t max_cached) {
  RandomLengths lengths;
  const std::int64_t batch = 1 + choice.below(5);
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t added = choice.pick<std::int64_t>({0, 1, 1, 2, 7, 8, 9, 31, 33, 70});
    const std::int64_t cached =
        choice.pick<std::int64_t>({0, 0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 300, 700});
    lengths.added.push_back(std::min(added, max_new));
    lengths.cached.push_back(std::min(cached, max_cached));
  }
  return lengths;
}

void add_pages(RandomChoice& choice, const RandomLengths& lengths, json& cache) {
  const std::int64_t page_size = choice.pick<std::int64_t>({1, 2, 3, 8, 16, 16, 48, 64, 128, 256});
  cache["page_size"] = page_size;
  cache["layers"] = 1 + choice.below(3);
  cache["page_order"] = choice.pick<const char*>({"shuffled", "shuffled", "identity", "reversed"});
  if (choice.one_in(3)) cache["order"] = "hnd";
  cache["spare_columns"] = choice.below(4);
  json holes = json::array();
  for (std::size_t b = 0; b < lengths.added.size() && choice.one_in(3); ++b) {
    const std::int64_t columns = (lengths.added[b] + lengths.cached[b] + page_size - 1) / page_size;
    if (columns > 0) holes.push_back({b, choice.below(columns)});
  }
  if (!holes.empty()) cache["unassigned"] = holes;
}

json random_head_cache(RandomChoice& choice, const RandomLengths& lengths, std::int64_t head_dim,
                       std::initializer_list<int> granularities) {
  json cache{{"head_dim", head_dim},
             {"kv_heads", 1 + choice.below(3)},
             {"dtype", choice.pick<const char*>({"bf16", "bf16", "f16", "f32", "fp8_e4m3",
                                                 "fp8_e4m3", "fp8_e5m2", "i8"})}};
  const bool is_coded = cache["dtype"] == "i8" || cache["dtype"] == "fp8_e4m3";
  if (cache["dtype"] == "i8" || (is_coded && choice.one_in(2))) {
    cache["row_format"] = "scaled";
    cache["scale_dtype"] = choice.pick<const char*>({"f32", "f32", "f16", "bf16"});
    cache["scales"] = choice.pick<const char*>({"dynamic", "dynamic", "static", "own_table"});
    if (choice.one_in(2)) cache["granularity"] = choice.pick(granularities);
  }
  add_pages(choice, lengths, cache);
  return cache;
}

json random_latent_cache(RandomChoice& choice, const RandomLengths& lengths) {
  json cache{{"latent", choice.pick({32, 64, 136, 512})}, {"rope", choice.pick({2, 8, 64})}};
  const std::string format =
      choice.pick<const char*>({"uniform", "uniform", "mla_fp8_token", "mla_fp8_block"});
  cache["row_format"] = format;
  if (format == "uniform") {
    cache["dtype"] = choice.pick<const char*>({"f32", "f16", "bf16", "bf16", "fp8_e4m3"});
  } else {
    cache["rope_dtype"] = choice.pick<const char*>({"bf16", "bf16", "f16", "f32"});
  }
  if (format == "mla_fp8_block") cache["granularity"] = choice.pick({8, 32, 128});
  add_pages(choice, lengths, cache);
  cache.erase("order");  // one head: both orders are one
  return cache;
}

void add_mask(RandomChoice& choice, const RandomLengths& lengths, json& object) {
  std::string text = choice.one_in(3) ? "causal" : random_mask_part(choice);
  for (int part = 0; part < 3 && choice.one_in(3); ++part) {
    text += choice.pick<const char*>({" & ", " | "}) + random_mask_part(choice);
  }
  object["mask"] = text;
  if (text.find("tree") == std::string::npos || lengths.tokens() == 0) return;
  object["blind_tokens"] = json::array({choice.below(lengths.tokens())});
}

}  // namespace quire::test
