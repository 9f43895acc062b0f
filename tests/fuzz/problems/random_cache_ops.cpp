// SPDX-License-Identifier: Apache-2.0
// Random problems of the ops that write a cache's rows one by one: store, store_scales, copy_pages, rms_norm, rope.
#include <algorithm>

#include "fuzz/problems/random_case.h"

namespace quire::test {
namespace {

using nlohmann::json;

std::int64_t random_head_dim(Draw& draw) {
  return draw.pick<std::int64_t>({1, 2, 4, 7, 8, 16, 17, 24, 31, 32, 33, 40, 64},
                                 {8, 24, 33, 64, 80, 128, 128, 192, 256});
}

// Rows of heads, or one latent row.
json random_any_cache(Draw& draw, const RandomLengths& lengths) {
  if (!draw.one_in(4)) {
    return random_head_cache(draw, lengths, random_head_dim(draw), {1, 3, 8, 16});
  }
  json cache = random_latent_cache(draw, lengths);
  cache["mla"] = true;
  return cache;
}

std::int64_t width_of(const json& cache) {
  if (cache.contains("head_dim")) return cache["head_dim"];
  return cache["latent"].get<std::int64_t>() + cache["rope"].get<std::int64_t>();
}

// Rows that may be changed in place: numbers without scales.
json random_unscaled_cache(Draw& draw, const RandomLengths& lengths) {
  json cache{
      {"dtype", draw.pick<const char*>({"bf16", "bf16", "f16", "f32", "fp8_e4m3", "fp8_e5m2"})}};
  if (draw.one_in(5)) {
    cache["mla"] = true;
    cache["latent"] = random_head_dim(draw);
    cache["rope"] = draw.pick({2, 4, 8, 16});
  } else {
    cache["kv_heads"] = draw.between(1, 3);
    cache["head_dim"] = random_head_dim(draw);
  }
  add_pages(draw, lengths, cache);
  return cache;
}

double random_amplitude(Draw& draw) {
  return draw.pick({1.0, 1.0, 1.0, 1e-6, 1e-3, 30.0, 1e4});
}

void add_norm(Draw& draw, json& object) {
  object["gamma_dtype"] = random_float(draw);
  if (draw.one_in(2)) object["epsilon"] = draw.pick({1e-12, 1e-5, 1.0, 1e6});
  if (draw.one_in(3)) object["weight_offset"] = draw.pick({1.0, -1.0, 0.5});
}

json random_norm(Draw& draw, bool needs_value) {
  const RandomLengths lengths = random_lengths(draw, 70, 130);
  json object{{"lengths", lengths.json()}, {"cache", random_unscaled_cache(draw, lengths)}};
  json& cache = object["cache"];
  if (needs_value && cache.contains("mla")) {
    cache.erase("mla");
    cache["head_dim"] = cache["latent"];
    cache["kv_heads"] = 2;
    cache.erase("latent");
    cache.erase("rope");
  }
  add_norm(draw, object);
  if (draw.one_in(4)) {
    object["per_head"] = false;
  } else if (draw.one_in(3)) {
    object["columns"] = draw.between(1, width_of(cache));
  }
  if (draw.one_in(2)) object["multiply_before_cast"] = false;
  return object;
}

// K and V in one call, places by slots, parts of one tensor: each apart from the others.
void add_store_form(Draw& draw, const RandomLengths& lengths, json& object) {
  json& cache = object["cache"];
  if (!cache.contains("mla") && draw.one_in(2)) {
    object["pair"] = true;
    object.erase("side");
  }
  if (draw.one_in(3)) object["q_heads"] = draw.between(0, 4);
  if (!draw.one_in(2)) return;
  object["slots"] = draw.pick<const char*>({"i64", "i64", "i32"});
  if (cache.value("scales", "dynamic") == "own_table") cache["scales"] = "dynamic";
  json skipped = json::array();
  for (std::int64_t token = 0; token < lengths.tokens(); ++token) {
    if (draw.one_in(6)) skipped.push_back(token);
  }
  if (!skipped.empty()) object["skipped"] = skipped;
}

}  // namespace

json random_store(Draw& draw) {
  const RandomLengths lengths = random_lengths(draw, 70, 130);
  json object{{"lengths", lengths.json()},
              {"cache", random_any_cache(draw, lengths)},
              {"x_dtype", random_float(draw)},
              {"amplitude", random_amplitude(draw)}};
  if (draw.one_in(3)) {
    use_power_scales(draw, object["cache"]);
  } else if (draw.one_in(4)) {
    use_int4(draw, object["cache"]);
  }
  const json& cache = object["cache"];
  if (!cache.contains("mla") && draw.one_in(2)) object["side"] = "value";
  const std::string dtype = cache.value("dtype", "mixed");
  const bool is_coded = dtype.starts_with("fp8") || dtype == "i8";
  if (is_coded && draw.one_in(4)) {
    // Codes leave the scales alone: without poison those of new rows are the twin's.
    object["x_dtype"] = dtype;
    object["cache"]["poison"] = false;
  }
  add_store_form(draw, lengths, object);
  return object;
}

json random_store_scales(Draw& draw) {
  const RandomLengths lengths = random_lengths(draw, 70, 130);
  json cache = random_head_cache(draw, lengths, random_head_dim(draw), {1, 3, 8, 16});
  cache["dtype"] = draw.pick<const char*>({"fp8_e4m3", "fp8_e5m2", "i8"});
  cache["row_format"] = "scaled";
  cache["scales"] = draw.pick<const char*>({"dynamic", "dynamic", "own_table"});
  json object{{"lengths", lengths.json()}, {"cache", cache}, {"x_dtype", random_float(draw)}};
  if (draw.one_in(2)) object["side"] = "value";
  return object;
}

json random_copy_pages(Draw& draw) {
  const RandomLengths lengths = random_lengths(draw, 20, 130);
  json cache = random_any_cache(draw, lengths);
  if (draw.one_in(5)) use_int4(draw, cache);
  if (cache.value("scales", "dynamic") == "own_table") cache["scales"] = "dynamic";
  const std::int64_t spare = draw.between(0, 6);
  cache["spare_pages"] = spare;
  std::int64_t pages = spare;
  const auto page_size = cache["page_size"].get<std::int64_t>();
  for (std::size_t b = 0; b < lengths.added.size(); ++b) {
    pages += (lengths.added[b] + lengths.cached[b] + page_size - 1) / page_size;
  }
  // Sources from the lower half, targets from the upper one, each once; now and then no page at all.
  const std::int64_t half = pages / 2;
  const std::int64_t count = std::min<std::int64_t>(draw.between(0, 9), pages - half);
  json pairs = json::array();
  for (std::int64_t i = 0; i < count && half > 0; ++i) {
    const std::int64_t none = draw.pick<std::int64_t>({pages, 0xffffffff});
    const std::int64_t source = draw.one_in(8) ? none : draw.below(half);
    pairs.push_back({source, draw.one_in(8) ? none : half + i});
  }
  return {{"lengths", lengths.json()}, {"cache", cache}, {"pairs", pairs}};
}

json random_rms_norm(Draw& draw) {
  return random_norm(draw, /*needs_value=*/false);
}

json random_rms_norm_value(Draw& draw) {
  return random_norm(draw, /*needs_value=*/true);
}

json random_rope(Draw& draw) {
  const RandomLengths lengths = random_lengths(draw, 70, 130);
  json object{{"lengths", lengths.json()},
              {"cache", random_unscaled_cache(draw, lengths)},
              {"heads", draw.between(1, 4)},
              {"q_dtype", random_float(draw)},
              {"freqs_dtype", draw.pick<const char*>({"f32", "f32", "f16", "bf16"})}};
  json& cache = object["cache"];
  if (width_of(cache) < 2) cache["head_dim"] = 2;
  const std::int64_t width = width_of(cache);
  const std::int64_t pairs = draw.between(1, width / 2);
  object["rope_dim"] = 2 * (draw.one_in(2) ? width / 2 : pairs);
  if (draw.one_in(2)) object["interleaved"] = true;
  if (draw.one_in(4)) object["inverse"] = true;
  if (draw.one_in(3)) object["position_ids"] = true;
  if (draw.one_in(6)) {
    const std::int64_t first = draw.between(0, pairs);
    object["mrope_sections"] = {first, draw.between(0, pairs - first)};
  }
  const bool has_ids = object.contains("position_ids") || object.contains("mrope_sections");
  if (has_ids && draw.one_in(2)) object["position_stride"] = draw.pick({2, 3});
  if (draw.one_in(4)) object["rotate_key"] = false;
  if (draw.one_in(3)) object["in_place"] = true;
  add_norm(draw, object);
  if (draw.one_in(2)) object["q_gamma"] = draw.one_in(2) ? width : draw.between(1, width);
  if (!object.contains("rotate_key") && draw.one_in(2)) {
    object["key_gamma"] = draw.one_in(2) ? width : draw.between(1, width);
  }
  return object;
}

}  // namespace quire::test
