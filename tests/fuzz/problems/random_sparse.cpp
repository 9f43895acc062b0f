// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "fuzz/problems/random_case.h"

namespace quire::test {

using nlohmann::json;

namespace {

// 512 columns that are key and value.
json make_whole_rows(Draw& draw, bool has_powers, json cache) {
  cache["latent"] = 448;
  cache["rope"] = 64;
  if (has_powers) {
    use_power_scales(draw, cache);
    cache["granularity"] = 64;
    cache["rope_dtype"] = "bf16";
  } else {
    cache["row_format"] = "uniform";
    cache["dtype"] = "bf16";
    cache.erase("granularity");
    cache.erase("rope_dtype");
  }
  return cache;
}

}  // namespace

json random_sparse_mla(Draw& draw) {
  const RandomLengths lengths =
      random_lengths(draw, draw.pick<std::int64_t>({1, 2, 9}, {1, 2, 33}), 700);
  const auto add_indices = [&](json& object) {
    object["top_k"] = draw.pick({1, 2, 7, 8, 9, 16, 17, 33}, {1, 7, 16, 63, 64, 65, 200});
    object["indices"] = draw.pick<const char*>({"chosen", "chosen", "hostile", "hostile", "none"});
    if (draw.one_in(2)) object["topk_lengths"] = true;
  };
  // Half of them are what kernels for DeepSeek's rows take.
  const bool is_deepseek = draw.one_in(draw.is_small() ? 32 : 2);
  const bool has_whole_rows = is_deepseek && draw.one_in(3);
  const bool has_powers = draw.below(3) > 0;
  const auto random_cache = [&](const RandomLengths& rows) {
    json cache = random_latent_cache(draw, rows);
    if (has_whole_rows) return make_whole_rows(draw, has_powers, cache);
    if (draw.one_in(4)) use_power_scales(draw, cache);
    if (!is_deepseek) return cache;
    cache["latent"] = 512;
    cache["rope"] = 64;
    if (cache.contains("dtype")) cache["dtype"] = draw.pick<const char*>({"bf16", "fp8_e4m3"});
    if (cache.contains("rope_dtype")) cache["rope_dtype"] = "bf16";
    if (cache.contains("granularity")) cache["granularity"] = 128;
    return cache;
  };
  // The oracle's work is bounded by the rows of queries.
  const std::int64_t most = 512 / std::max<std::int64_t>(lengths.tokens(), 1);
  const std::int64_t heads = draw.pick({1, 2, 3, 5, 8, 9}, {1, 2, 8, 9, 16, 33, 64, 128});
  json object{{"lengths", lengths.json()},
              {"cache", random_cache(lengths)},
              {"heads", std::clamp<std::int64_t>(most, 1, heads)},
              {"q_dtype", is_deepseek ? "bf16" : random_float(draw)}};
  add_indices(object);
  if (draw.one_in(3)) {
    const std::int64_t tokens_per_row = draw.one_in(2) ? draw.pick({2, 4, 4, 128}) : 1;
    json extra{{"cache", random_cache(lengths.compressed(tokens_per_row))},
               {"tokens_per_row", tokens_per_row}};
    extra["cache"]["latent"] = object["cache"]["latent"];
    extra["cache"]["rope"] = object["cache"]["rope"];
    add_indices(extra);
    object["extra"] = extra;
  }
  if (has_whole_rows) {
    object["values"] = 512;
  } else if (draw.one_in(4)) {
    const std::int64_t width =
        object["cache"]["latent"].get<std::int64_t>() + object["cache"]["rope"].get<std::int64_t>();
    object["values"] = draw.one_in(4) ? draw.between(1, width) : width;
  }
  if (draw.one_in(4)) object["sinks"] = true;
  if (draw.one_in(4)) object["lse"] = false;
  // Sharp: maxima rise from tile to tile.
  if (draw.one_in(4)) object["scale"] = draw.pick({0.3, 1.0});
  if (draw.one_in(5)) object["batch_invariant"] = true;
  return object;
}

// An indexer's keys, of one head without V, or those of attention.
json random_select_blocks(Draw& draw) {
  const RandomLengths lengths = random_lengths(draw, draw.pick<std::int64_t>({1, 5, 40}), 700);
  json object{{"lengths", lengths.json()}, {"q_dtype", random_float(draw)}};
  std::int64_t kv_heads = 1;
  if (draw.one_in(2)) {
    object["cache"] = random_latent_cache(draw, lengths);
    object["cache"]["mla"] = true;
  } else {
    const std::int64_t head_dim = draw.pick({1, 5, 8, 17, 32, 33, 64}, {8, 33, 64, 128, 256});
    object["cache"] = random_head_cache(draw, lengths, head_dim, {5, 8, 16, 32});
    if (draw.one_in(6)) use_int4(draw, object["cache"]);
    kv_heads = object["cache"]["kv_heads"].get<std::int64_t>();
  }
  object["heads"] = kv_heads * draw.pick({1, 2, 3, 4, 9}, {1, 2, 4, 9, 33});
  object["block_size"] = draw.pick({1, 2, 5, 8, 16, 63, 64, 65, 128});
  const std::int64_t max_blocks = draw.pick({1, 2, 3, 4, 7, 16, 33});
  const std::int64_t first_blocks = draw.one_in(3) ? draw.below(max_blocks + 1) : 0;
  object["max_blocks"] = max_blocks;
  object["first_blocks"] = first_blocks;
  object["local_blocks"] =
      std::min<std::int64_t>(draw.pick({0, 1, 1, 2}), max_blocks - first_blocks);
  if (draw.one_in(3)) object["mask"] = "full";
  if (draw.one_in(5)) object["data"] = "all_equal";
  return object;
}

}  // namespace quire::test
