// SPDX-License-Identifier: Apache-2.0
#include "random_case.h"

#include <algorithm>
#include <map>
#include <stdexcept>

namespace quire::test {
namespace {

using nlohmann::json;

// The keys that mla_decode and mla_prefill have in common.
json random_latent(RandomChoice& choice, const RandomLengths& lengths) {
  json object{{"lengths", lengths.json()},
              {"cache", random_latent_cache(choice, lengths)},
              {"heads", choice.pick({1, 2, 3, 8, 16})},
              {"nope", choice.pick({16, 24, 64, 128})},
              {"value", choice.pick({12, 64, 128})},
              {"q_dtype", random_float(choice)},
              {"gamma_dtype", random_float(choice)},
              {"freqs_dtype", choice.pick<const char*>({"f32", "f32", "bf16"})},
              {"rows", choice.pick<const char*>({"raw", "kv", "finished"})}};
  if (choice.one_in(3)) object["weight_dtype"] = "fp8_e4m3";
  add_mask(choice, lengths, object);
  if (choice.one_in(4)) object["sinks"] = true;
  if (choice.one_in(4)) object["lse"] = false;
  return object;
}

// Rows of 512 + 64 columns in pages of a multiple of 16 tokens, which the fast kernels ask for. The
// oracle's work is bounded by the rows of queries.
void make_deepseek(RandomChoice& choice, const RandomLengths& lengths, json& object) {
  json& cache = object["cache"];
  cache["latent"] = 512;
  cache["rope"] = 64;
  if (cache.contains("dtype")) {
    cache["dtype"] = choice.pick<const char*>({"bf16", "bf16", "bf16", "fp8_e4m3"});
  }
  if (cache.contains("rope_dtype")) cache["rope_dtype"] = "bf16";
  if (cache.contains("granularity")) cache["granularity"] = 128;
  const std::int64_t page_size = choice.pick<std::int64_t>({16, 16, 32, 48, 64, 64, 128, 256});
  cache["page_size"] = page_size;
  cache.erase("unassigned");
  const std::int64_t pages = (lengths.added[0] + lengths.cached[0] + page_size - 1) / page_size;
  if (pages > 0 && choice.one_in(4)) {
    cache["unassigned"] = json::array({json::array({0, choice.below(pages)})});
  }
  const std::int64_t heads = choice.pick({1, 3, 8, 16, 33, 64, 128});
  const std::int64_t most = 256 / std::max<std::int64_t>(lengths.tokens(), 1);
  object["heads"] = std::clamp<std::int64_t>(most, 1, heads);
  object["q_dtype"] = "bf16";
  object["nope"] = 128;
  object["value"] = 128;
  if (!choice.one_in(3)) {
    object["mask"] = choice.pick<const char*>({"causal", "causal", "full", "sliding_window:65"});
    object.erase("blind_tokens");
  }
  if (choice.one_in(6)) object["batch_invariant"] = true;
}

json random_mla_decode(RandomChoice& choice) {
  const RandomLengths lengths = random_lengths(choice, 8, 700);
  json object = random_latent(choice, lengths);
  const bool is_deepseek = !choice.one_in(4);
  if (is_deepseek) make_deepseek(choice, lengths, object);
  if (choice.one_in(4)) {
    object["absorbed"] = true;
  } else if (is_deepseek && !choice.one_in(4)) {
    object["absorbed"] = true;
    object["rows"] = "finished";
  } else if (!object.contains("weight_dtype") && choice.one_in(3)) {
    object["split_kv_b_proj"] = true;
  }
  return object;
}

// What the fast kernel asks for, mostly: heads of DeepSeek's widths, rope columns of q's dtype, pages
// and buffers of whole groups of 8 keys, a mask that shows one interval of keys.
void make_branch_problem(RandomChoice& choice, const RandomLengths& lengths, json& object) {
  object["nope"] = object["value"] = 128;
  object["heads"] = choice.pick({1, 1, 1, 2, 3});
  object["q_dtype"] = choice.pick<const char*>({"bf16", "bf16", "f16"});
  json& cache = object["cache"];
  cache["latent"] = choice.pick({64, 64, 64, 208, 208, 512});
  cache["rope"] = 64;
  if (cache["row_format"] == "uniform" && choice.below(4) > 0) cache["dtype"] = object["q_dtype"];
  if (cache["row_format"] == "mla_fp8_token" && choice.below(3) > 0) {
    cache["row_format"] = "mla_fp8_block";
    cache["granularity"] = choice.pick({32, 128});
  }
  if (cache["row_format"] == "mla_fp8_block") cache["rope_dtype"] = object["q_dtype"];
  const std::int64_t page_size = choice.pick<std::int64_t>({8, 16, 64, 128});
  const std::int64_t pages = (lengths.added[0] + lengths.cached[0] + page_size - 1) / page_size;
  cache["page_size"] = page_size;
  cache.erase("unassigned");
  if (pages > 0 && choice.one_in(4)) {
    cache["unassigned"] = json::array({json::array({0, choice.below(pages)})});
  }
  // e4m3 products move one K in some hundred by a step, and an LSE by a part of the error that is
  // allowed. Of one or two numbers the naive error may by chance be next to nothing. Where a page
  // is missing, all rows of its sequence may see no key.
  const std::int64_t blind = cache.contains("unassigned") ? lengths.added[0] : 0;
  if (object.contains("weight_dtype") && lengths.tokens() - blind < 8) object["heads"] = 8;
  if (choice.one_in(6)) return;
  object.erase("blind_tokens");
  object["mask"] = choice.pick<const char*>({"causal", "causal", "full", "sliding_window:16",
                                             "sliding_window_causal:65", "chunked_causal:63",
                                             "chunked:200 & sliding_window_causal:33"});
}

// What mla_decode takes too: no tree, and fp8 weights of whole blocks.
bool can_be_mixed(const json& object) {
  const bool has_tree = object.value("mask", "causal").find("tree") != std::string::npos;
  const bool has_blocks = object["nope"] == 128 && object["value"] == 128;
  return !has_tree && (!object.contains("weight_dtype") || has_blocks);
}

json random_mla_prefill(RandomChoice& choice) {
  const bool is_deepseek = choice.below(4) > 0;
  const RandomLengths lengths = random_lengths(choice, 200, choice.one_in(8) ? 400 : 130);
  json object = random_latent(choice, lengths);
  if (is_deepseek) make_branch_problem(choice, lengths, object);
  if (choice.one_in(2)) object["buffer_tokens"] = choice.pick({16, 20, 48, 64, 248, 1024});
  if (choice.one_in(3) && can_be_mixed(object)) {
    object["decode_tokens"] = choice.pick({1, 2, 8});
    return object;
  }
  if (choice.one_in(4)) object["softcap"] = choice.pick({0.5, 3.0, 30.0});
  if (choice.one_in(4)) object["alibi"] = true;
  if (choice.one_in(4)) object["allow_fp8_products"] = true;
  return object;
}

json random_mla_prefill_plan(RandomChoice& choice) {
  const RandomLengths lengths = random_lengths(choice, 70, 700);
  json cache{{"latent", 8}, {"rope", 2}};
  add_pages(choice, lengths, cache);
  cache.erase("order");
  cache.erase("unassigned");
  return {{"lengths", lengths.json()},
          {"cache", cache},
          {"buffer_tokens", choice.pick({1, 16, 20, 48, 64, 250, 1024})},
          {"decode_tokens", choice.pick({0, 0, 1, 8})}};
}

// Three times of four what models ask for, with enough keys for pools to fill now and then.
json random_mla_indexer(RandomChoice& choice) {
  const bool is_real = !choice.one_in(4);
  RandomLengths lengths = random_lengths(choice, 33, 700);
  if (is_real && choice.one_in(8)) {
    lengths.cached[0] += 4000;
    lengths.added[0] = std::min<std::int64_t>(lengths.added[0], 2);
  }
  json cache{{"latent", is_real ? choice.pick({64, 128, 128}) : choice.pick({32, 40, 64, 132})},
             {"rope", 0},
             {"dtype", "fp8_e4m3"},
             {"row_format", "scaled"},
             {"scales", choice.pick<const char*>({"dynamic", "dynamic", "own_table"})}};
  add_pages(choice, lengths, cache);
  cache.erase("order");
  if (is_real) {
    const std::int64_t page_size = choice.pick<std::int64_t>({16, 16, 32, 48, 64, 128, 256});
    const std::int64_t pages = (lengths.added[0] + lengths.cached[0] + page_size - 1) / page_size;
    const bool has_hole = cache.contains("unassigned") && pages > 0;
    cache["page_size"] = page_size;
    cache.erase("unassigned");
    if (has_hole) cache["unassigned"] = json::array({json::array({0, choice.below(pages)})});
  }
  return {{"lengths", lengths.json()},
          {"cache", cache},
          {"heads", is_real ? choice.pick({4, 8, 16, 32, 64, 64}) : choice.pick({1, 3, 8, 70})},
          {"top_k", choice.pick({1, 2, 16, 63, 64, 65, 256, 2048})},
          {"mask", choice.one_in(3) ? "full" : "causal"},
          {"data", choice.pick<const char*>({"random", "random", "all_equal", "all_negative"})}};
}

json random_sparse_mla(RandomChoice& choice) {
  const RandomLengths lengths = random_lengths(choice, choice.pick<std::int64_t>({1, 2, 33}), 700);
  const auto add_indices = [&](json& object) {
    object["top_k"] = choice.pick({1, 7, 16, 63, 64, 65, 200});
    object["indices"] =
        choice.pick<const char*>({"chosen", "chosen", "hostile", "hostile", "none"});
    if (choice.one_in(2)) object["topk_lengths"] = true;
  };
  // Half of them are what kernels for DeepSeek's rows take.
  const bool is_deepseek = choice.one_in(2);
  const auto random_cache = [&] {
    json cache = random_latent_cache(choice, lengths);
    if (!is_deepseek) return cache;
    cache["latent"] = 512;
    cache["rope"] = 64;
    if (cache.contains("dtype")) cache["dtype"] = choice.pick<const char*>({"bf16", "fp8_e4m3"});
    if (cache.contains("rope_dtype")) cache["rope_dtype"] = "bf16";
    if (cache.contains("granularity")) cache["granularity"] = 128;
    return cache;
  };
  // The oracle's work is bounded by the rows of queries.
  const std::int64_t most = 512 / std::max<std::int64_t>(lengths.tokens(), 1);
  const std::int64_t heads = choice.pick({1, 2, 8, 9, 16, 33, 64, 128});
  json object{{"lengths", lengths.json()},
              {"cache", random_cache()},
              {"heads", std::clamp<std::int64_t>(most, 1, heads)},
              {"q_dtype", is_deepseek ? "bf16" : random_float(choice)}};
  add_indices(object);
  if (choice.one_in(3)) {
    json extra{{"cache", random_cache()}};
    extra["cache"]["latent"] = object["cache"]["latent"];
    extra["cache"]["rope"] = object["cache"]["rope"];
    add_indices(extra);
    object["extra"] = extra;
  }
  if (choice.one_in(4)) object["sinks"] = true;
  if (choice.one_in(4)) object["lse"] = false;
  // Sharp: maxima rise from tile to tile.
  if (choice.one_in(4)) object["scale"] = choice.pick({0.3, 1.0});
  return object;
}

}  // namespace

json random_case(const std::string& op, std::uint64_t seed, std::int64_t index) {
  using Generator = json (*)(RandomChoice&);
  static const std::map<std::string, Generator> generators{
      {"fused_qkv_matmul", random_fused_qkv_matmul},
      {"flash_attention", random_flash_attention},
      {"mla_decode", random_mla_decode},
      {"mla_prefill", random_mla_prefill},
      {"mla_prefill_plan", random_mla_prefill_plan},
      {"mla_indexer", random_mla_indexer},
      {"sparse_mla", random_sparse_mla}};
  const auto found = generators.find(op);
  if (found == generators.end()) throw std::invalid_argument("no random cases of " + op);
  RandomChoice choice(seed * 1'000'003 + static_cast<std::uint64_t>(index));
  json object = found->second(choice);
  object["op"] = op;
  object["name"] = op + "/random_" + std::to_string(seed) + "_" + std::to_string(index);
  object["tags"] = json::array({"edge"});
  return object;
}

}  // namespace quire::test
