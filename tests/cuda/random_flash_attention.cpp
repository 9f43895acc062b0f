// SPDX-License-Identifier: Apache-2.0
// Random problems of flash_attention: anything the op takes, and, two times of three, what the tile
// kernels are made for, so that a run of some thousand problems is a run of those.
#include "random_case.h"

#include <algorithm>

namespace quire::test {
namespace {

using nlohmann::json;

void add_modifiers(RandomChoice& choice, json& object) {
  if (choice.one_in(4)) object["softcap"] = choice.pick({0.5, 3.0, 30.0});
  if (choice.one_in(4)) object["alibi"] = true;
  if (choice.one_in(4)) object["sinks"] = true;
  if (choice.one_in(4)) object["lse"] = false;
  if (choice.one_in(5)) object["scale"] = choice.pick({0.02, 1.0, 4.0});
  if (choice.one_in(5)) object["batch_invariant"] = true;
}

json random_any(RandomChoice& choice) {
  const RandomLengths lengths = random_lengths(choice, 70, 700);
  json object{{"lengths", lengths.json()}, {"q_dtype", random_float(choice)}};
  if (choice.one_in(5)) {
    object["cache"] = random_latent_cache(choice, lengths);
    object["cache"]["mla"] = true;
    object["value_dim"] = object["cache"]["latent"];
    object["heads"] = choice.pick({1, 3, 16, 40});
  } else {
    const std::int64_t head_dim =
        choice.pick({8, 20, 33, 40, 64, 64, 80, 96, 112, 128, 128, 192, 256});
    object["cache"] = random_head_cache(choice, lengths, head_dim, {5, 8, 16, 32});
    object["heads"] =
        object["cache"]["kv_heads"].get<int>() * choice.pick({1, 1, 2, 3, 4, 7, 8, 16});
    if (choice.one_in(6)) object["value_dim"] = 1 + choice.below(object["cache"]["head_dim"]);
  }
  add_mask(choice, lengths, object);
  add_modifiers(choice, object);
  if (choice.one_in(5)) object["out_dtype"] = random_float(choice);
  return object;
}

// One interval of keys for every query: parts that all must hold, at most one of them chunked.
std::string random_interval(RandomChoice& choice) {
  const auto sized = [&](const char* kind) {
    return kind + std::string(":") + std::to_string(choice.pick({1, 2, 5, 16, 63, 64, 65, 200}));
  };
  std::string text = choice.pick<const char*>({"causal", "causal", "causal", "full"});
  if (choice.one_in(3)) {
    text += " & " + sized(choice.one_in(2) ? "sliding_window" : "sliding_window_causal");
  }
  if (choice.one_in(4)) text += " & " + sized(choice.one_in(2) ? "chunked" : "chunked_causal");
  return text;
}

// Speculation: of the interval, what a tree of the new tokens shows.
void add_tree(RandomChoice& choice, const RandomLengths& lengths, json& object) {
  object["mask"] = object["mask"].get<std::string>() + " & tree";
  if (lengths.tokens() == 0 || choice.one_in(2)) return;
  object["blind_tokens"] = json::array({choice.below(lengths.tokens())});
}

// Pages of whole groups of rows, unless one in six.
void make_pages_whole(RandomChoice& choice, const RandomLengths& lengths, json& cache) {
  add_pages(choice, lengths, cache);
  if (cache["page_size"].get<std::int64_t>() % 8 == 0 || choice.one_in(6)) return;
  cache["page_size"] = choice.pick({8, 16, 24, 64, 128});
  cache.erase("unassigned");
}

// New tokens of decoding, of speculation, or of a chunk of a prompt.
json random_tiled(RandomChoice& choice) {
  const auto most_new = choice.pick<std::int64_t>({1, 4, 16, 70});
  // Now and then so long that tiles are cut along their keys; the oracle takes its time for those.
  const bool is_long = most_new == 16 && choice.one_in(3);
  const RandomLengths lengths = random_lengths(choice, most_new, is_long ? 3500 : 700);
  const char* q_dtype = choice.pick<const char*>({"bf16", "bf16", "f16"});
  json cache{{"head_dim", choice.pick({64, 64, 80, 96, 112, 128, 128, 128, 192, 256})},
             {"kv_heads", 1 + choice.below(3)},
             {"dtype", choice.one_in(3) ? "fp8_e4m3" : q_dtype}};
  if (cache["dtype"] == "fp8_e4m3" && choice.one_in(3)) {
    cache["row_format"] = "scaled";
    cache["scales"] = "static";
  }
  make_pages_whole(choice, lengths, cache);
  json object{{"lengths", lengths.json()}, {"q_dtype", q_dtype}, {"mask", random_interval(choice)}};
  object["heads"] = cache["kv_heads"].get<int>() *
                    (is_long ? choice.pick({2, 4}) : choice.pick({1, 2, 3, 4, 7, 8, 16, 32}));
  // Products of e4m3 sum with 13 bits, where scores of bf16 keep 8. Of a few LSEs the naive error
  // may by chance be next to nothing, and then does not say what such an evaluation loses.
  if (cache["dtype"] == "fp8_e4m3" && lengths.tokens() * object["heads"].get<int>() < 8) {
    object["heads"] = 8 * cache["kv_heads"].get<int>();
  }
  if (cache["head_dim"] == 192 && choice.one_in(2)) object["value_dim"] = 128;
  object["cache"] = cache;
  if (choice.one_in(6)) add_tree(choice, lengths, object);
  add_modifiers(choice, object);
  if (cache["dtype"] == "fp8_e4m3" && choice.one_in(2)) object["allow_fp8_products"] = true;
  return object;
}

// Pages that every sequence with new tokens has in its cache, shared by all.
void share_pages(RandomChoice& choice, json& object) {
  if (object["cache"].contains("unassigned")) return;
  const json& lengths = object["lengths"];
  std::int64_t least = 1 << 20;
  for (std::size_t i = 0; i < lengths["new"].size(); ++i) {
    if (lengths["new"][i] > 0) least = std::min(least, lengths["cached"][i].get<std::int64_t>());
  }
  const std::int64_t pages = least / object["cache"]["page_size"].get<std::int64_t>();
  if (pages == 0 || least == 1 << 20) return;
  object["shared_prefix_pages"] = 1 + choice.below(pages);
  if (choice.one_in(4)) return;
  // What the kernel for it takes.
  object["mask"] = choice.pick<const char*>({"causal", "causal", "full"});
  for (const char* other : {"alibi", "batch_invariant", "blind_tokens"}) object.erase(other);
}

}  // namespace

json random_flash_attention(RandomChoice& choice) {
  json object = choice.one_in(3) ? random_any(choice) : random_tiled(choice);
  if (choice.one_in(4)) share_pages(choice, object);
  return object;
}

}  // namespace quire::test
