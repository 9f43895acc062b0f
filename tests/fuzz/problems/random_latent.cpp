// SPDX-License-Identifier: Apache-2.0
// Random problems of the MLA ops over whole sequences: mla_decode, mla_prefill with its plan, mla_indexer.
#include <algorithm>

#include "fuzz/problems/random_case.h"

namespace quire::test {
namespace {

using nlohmann::json;

// The keys that mla_decode and mla_prefill have in common.
json random_latent(Draw& draw, const RandomLengths& lengths) {
  json object{{"lengths", lengths.json()},
              {"cache", random_latent_cache(draw, lengths)},
              {"heads", draw.pick({1, 2, 3, 4, 5}, {1, 2, 3, 8, 16})},
              {"nope", draw.pick({1, 2, 5, 8, 16, 17, 24}, {16, 24, 64, 128})},
              {"value", draw.pick({1, 3, 8, 12, 16, 33}, {12, 64, 128})},
              {"q_dtype", random_float(draw)},
              {"gamma_dtype", random_float(draw)},
              {"freqs_dtype", draw.pick<const char*>({"f32", "f32", "bf16"})},
              {"rows", draw.pick<const char*>({"raw", "kv", "finished"})}};
  if (draw.one_in(3)) object["weight_dtype"] = "fp8_e4m3";
  add_mask(draw, lengths, object);
  if (draw.one_in(4)) object["sinks"] = true;
  if (draw.one_in(4)) object["lse"] = false;
  return object;
}

// Rows of 512 + 64 columns in pages of a multiple of 16 tokens, which the fast kernels ask for. The
// oracle's work is bounded by the rows of queries.
void make_deepseek(Draw& draw, const RandomLengths& lengths, json& object) {
  json& cache = object["cache"];
  cache["latent"] = 512;
  cache["rope"] = 64;
  if (cache.contains("dtype")) {
    cache["dtype"] = draw.pick<const char*>({"bf16", "bf16", "bf16", "fp8_e4m3"});
  }
  if (cache.contains("rope_dtype")) cache["rope_dtype"] = "bf16";
  if (cache.contains("granularity")) cache["granularity"] = 128;
  cache["page_size"] = draw.pick({16, 16, 32, 48, 64, 64, 128, 256});
  cache.erase("unassigned");
  if (draw.one_in(4)) add_hole(draw, lengths, cache);
  const std::int64_t heads = draw.pick({1, 3, 8, 16, 33, 64, 128});
  const std::int64_t most = 256 / std::max<std::int64_t>(lengths.tokens(), 1);
  object["heads"] = std::clamp<std::int64_t>(most, 1, heads);
  object["q_dtype"] = "bf16";
  object["nope"] = 128;
  object["value"] = 128;
  if (!draw.one_in(3)) {
    object["mask"] = draw.pick<const char*>({"causal", "causal", "full", "sliding_window:65",
                                             "causal & key_intervals", "key_intervals:ranks"});
    object.erase("blind_tokens");
  }
  if (draw.one_in(6)) object["batch_invariant"] = true;
}

// What the fast kernel asks for, mostly: heads of DeepSeek's widths, rope columns of q's dtype, pages
// and buffers of whole groups of 8 keys, a mask that shows one interval of keys.
void make_branch_problem(Draw& draw, const RandomLengths& lengths, json& object) {
  object["nope"] = object["value"] = 128;
  object["heads"] = draw.pick({1, 1, 1, 2, 3});
  object["q_dtype"] = draw.pick<const char*>({"bf16", "bf16", "f16"});
  json& cache = object["cache"];
  cache["latent"] = draw.pick({64, 64, 64, 208, 208, 512});
  cache["rope"] = 64;
  if (cache["row_format"] == "uniform" && draw.below(4) > 0) cache["dtype"] = object["q_dtype"];
  if (cache["row_format"] == "mla_fp8_token" && draw.below(3) > 0) {
    cache["row_format"] = "mla_fp8_block";
    cache["granularity"] = draw.pick({32, 128});
  }
  if (cache["row_format"] == "mla_fp8_block") cache["rope_dtype"] = object["q_dtype"];
  cache["page_size"] = draw.pick({8, 16, 64, 128});
  cache.erase("unassigned");
  if (draw.one_in(4)) add_hole(draw, lengths, cache);
  // e4m3 products move one K in some hundred by a step, and an LSE by a part of the error that is
  // allowed. Of one or two numbers the naive error may by chance be next to nothing. Where a page
  // is missing, all rows of its sequence may see no key.
  const std::int64_t blind = cache.contains("unassigned") ? lengths.added[0] : 0;
  if (object.contains("weight_dtype") && lengths.tokens() - blind < 8) object["heads"] = 8;
  if (draw.one_in(6)) return;
  object.erase("blind_tokens");
  object["mask"] = draw.pick<const char*>({"causal", "causal", "full", "sliding_window:16",
                                           "sliding_window_causal:65", "chunked_causal:63",
                                           "chunked:200 & sliding_window_causal:33",
                                           "causal & key_intervals", "key_intervals:spans"});
}

// Over latents of e4m3. Of a few LSEs the naive error may by chance be next to nothing.
void allow_fp8_products(const RandomLengths& lengths, json& object) {
  const json& cache = object["cache"];
  const bool is_e4m3 = cache["row_format"].get<std::string>().starts_with("mla_fp8") ||
                       cache.value("dtype", "") == "fp8_e4m3";
  if (!is_e4m3) return;
  object["allow_fp8_products"] = true;
  if (lengths.tokens() * object["heads"].get<int>() < 8) object["heads"] = 8;
}

// What mla_decode takes too: nothing that a mask says of single tokens, and fp8 weights of whole blocks.
bool can_be_mixed(const json& object) {
  const std::string mask = object.value("mask", "causal");
  const bool has_rows =
      mask.find("tree") != std::string::npos || mask.find("key_intervals") != std::string::npos;
  const bool has_blocks = object["nope"] == 128 && object["value"] == 128;
  return !has_rows && (!object.contains("weight_dtype") || has_blocks);
}

}  // namespace

json random_mla_decode(Draw& draw) {
  const RandomLengths lengths = random_lengths(draw, 8, 700);
  json object = random_latent(draw, lengths);
  const bool is_deepseek = draw.is_small() ? draw.one_in(32) : !draw.one_in(4);
  if (is_deepseek) make_deepseek(draw, lengths, object);
  if (draw.one_in(4)) {
    object["absorbed"] = true;
  } else if (is_deepseek && !draw.one_in(4)) {
    object["absorbed"] = true;
    object["rows"] = "finished";
  } else if (!object.contains("weight_dtype") && draw.one_in(3)) {
    object["split_kv_b_proj"] = true;
  }
  if (object["rows"] == "finished" && draw.one_in(3)) add_keys(draw, object);
  if (draw.one_in(2)) allow_fp8_products(lengths, object);
  return object;
}

json random_mla_prefill(Draw& draw) {
  const bool is_deepseek = draw.is_small() ? draw.one_in(32) : draw.below(4) > 0;
  const RandomLengths lengths = random_lengths(draw, 200, draw.one_in(8) ? 400 : 130);
  json object = random_latent(draw, lengths);
  if (is_deepseek) make_branch_problem(draw, lengths, object);
  if (draw.one_in(2))
    object["buffer_tokens"] = draw.pick({1, 2, 5, 8, 16, 33, 64}, {16, 20, 48, 64, 248, 1024});
  if (draw.one_in(3) && can_be_mixed(object)) {
    object["decode_tokens"] = draw.pick({1, 2, 8});
    if (draw.one_in(4)) object["batch_invariant"] = true;
    return object;
  }
  if (draw.one_in(4)) object["softcap"] = draw.pick({0.5, 3.0, 30.0});
  if (draw.one_in(4)) object["alibi"] = true;
  if (draw.one_in(4)) object["allow_fp8_products"] = true;
  if (draw.one_in(6)) object["batch_invariant"] = true;
  return object;
}

json random_mla_prefill_plan(Draw& draw) {
  const RandomLengths lengths = random_lengths(draw, 70, 700);
  json cache{{"latent", 8}, {"rope", 2}};
  add_pages(draw, lengths, cache);
  cache.erase("order");
  cache.erase("unassigned");
  return {{"lengths", lengths.json()},
          {"cache", cache},
          {"buffer_tokens", draw.pick({1, 16, 20, 48, 64, 250, 1024})},
          {"decode_tokens", draw.pick({0, 0, 1, 8})}};
}

// Three times of four what models ask for, with enough keys for pools to fill now and then.
// Rows of compressed keys: where holes may be follows from them.
RandomLengths RandomLengths::compressed(std::int64_t tokens_per_row) const {
  RandomLengths rows;
  for (std::size_t b = 0; b < added.size(); ++b) {
    rows.cached.push_back(cached[b] / tokens_per_row);
    rows.added.push_back((cached[b] + added[b]) / tokens_per_row - rows.cached.back());
  }
  return rows;
}

json random_mla_indexer(Draw& draw) {
  const bool is_real = draw.is_small() ? draw.one_in(16) : !draw.one_in(4);
  RandomLengths lengths = random_lengths(draw, 33, 700);
  if (is_real && !lengths.added.empty() && draw.one_in(8)) {
    lengths.cached[0] += 4000;
    lengths.added[0] = std::min<std::int64_t>(lengths.added[0], 2);
  }
  json cache{{"latent", is_real ? draw.pick({64, 128, 128})
                                : draw.pick({1, 3, 8, 16, 20, 32, 33, 64}, {32, 40, 64, 132})},
             {"rope", 0},
             {"dtype", "fp8_e4m3"},
             {"row_format", "scaled"},
             {"scales", draw.pick<const char*>({"dynamic", "dynamic", "own_table"})}};
  const std::int64_t tokens_per_key = draw.one_in(4) ? draw.pick({2, 3, 4, 4, 128}) : 1;
  add_pages(draw, lengths.compressed(tokens_per_key), cache);
  cache.erase("order");
  if (is_real) {
    const bool has_hole = cache.contains("unassigned");
    cache["page_size"] = draw.pick({16, 16, 32, 48, 64, 128, 256});
    cache.erase("unassigned");
    if (has_hole) add_hole(draw, lengths.compressed(tokens_per_key), cache);
  }
  return {{"lengths", lengths.json()},
          {"tokens_per_key", tokens_per_key},
          {"cache", cache},
          {"heads", is_real ? draw.pick({4, 8, 16, 32, 64, 64})
                            : draw.pick({1, 2, 3, 4, 8, 9}, {1, 3, 8, 70})},
          {"top_k", draw.pick({1, 2, 3, 7, 8, 16, 17, 33, 64}, {1, 2, 16, 63, 64, 65, 256, 2048})},
          {"mask", draw.one_in(3) ? "full" : "causal"},
          {"data", draw.pick<const char*>({"random", "random", "all_equal", "all_negative"})},
          {"batch_invariant", draw.one_in(5)},
          {"scores", draw.one_in(3)}};
}

}  // namespace quire::test
