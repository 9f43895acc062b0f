// SPDX-License-Identifier: Apache-2.0
// Random problems of flash_attention: anything the op takes, and, two times of three, what the tile
// kernels are made for, so that a run of some thousand problems is a run of those.
#include "fuzz/problems/random_case.h"

#include <algorithm>

namespace quire::test {
namespace {

using nlohmann::json;

void add_modifiers(Draw& draw, json& object) {
  if (draw.one_in(4)) object["softcap"] = draw.pick({0.5, 3.0, 30.0});
  if (draw.one_in(4)) object["alibi"] = true;
  if (draw.one_in(4)) object["sinks"] = true;
  if (draw.one_in(4)) object["lse"] = false;
  if (draw.one_in(5)) object["scale"] = draw.pick({0.02, 1.0, 4.0});
  if (draw.one_in(5)) object["batch_invariant"] = true;
  if (draw.one_in(5)) object["max_workspace_kib"] = draw.pick({1080, 1270, 1950});
}

json random_any(Draw& draw) {
  const RandomLengths lengths = random_lengths(draw, 70, 700);
  json object{{"lengths", lengths.json()}, {"q_dtype", random_float(draw)}};
  if (draw.one_in(5)) {
    object["cache"] = random_latent_cache(draw, lengths);
    object["cache"]["mla"] = true;
    object["value_dim"] = object["cache"]["latent"];
    object["heads"] = draw.pick({1, 3, 8}, {1, 3, 16, 40});
  } else {
    const std::int64_t head_dim =
        draw.pick({1, 2, 5, 7, 8, 12, 16, 17, 20, 24, 31, 32, 33, 40, 64},
                  {8, 20, 33, 40, 64, 64, 80, 96, 112, 128, 128, 192, 256, 320, 512});
    object["cache"] = random_head_cache(draw, lengths, head_dim, {5, 8, 16, 32});
    object["heads"] = object["cache"]["kv_heads"].get<int>() *
                      draw.pick({1, 1, 2, 3, 4, 7}, {1, 1, 2, 3, 4, 7, 8, 16});
    if (draw.one_in(6)) object["value_dim"] = 1 + draw.below(object["cache"]["head_dim"]);
  }
  add_mask(draw, lengths, object);
  add_modifiers(draw, object);
  if (draw.one_in(5)) object["out_dtype"] = random_float(draw);
  return object;
}

// One interval of keys for every query: parts that all must hold, at most one of them chunked, one of key intervals.
std::string random_interval(Draw& draw) {
  const auto sized = [&](const char* kind) {
    return kind + std::string(":") + std::to_string(draw.pick({1, 2, 5, 16, 63, 64, 65, 200}));
  };
  std::string text = draw.pick<const char*>({"causal", "causal", "causal", "full"});
  if (draw.one_in(3)) {
    text += " & " + sized(draw.one_in(2) ? "sliding_window" : "sliding_window_causal");
  }
  if (draw.one_in(4)) text += " & " + sized(draw.one_in(2) ? "chunked" : "chunked_causal");
  if (draw.one_in(6)) text += " & " + random_key_intervals(draw);
  return text;
}

// Speculation: of the interval, what a tree of the new tokens shows.
void add_tree(Draw& draw, const RandomLengths& lengths, json& object) {
  object["mask"] = object["mask"].get<std::string>() + " & tree";
  if (lengths.tokens() == 0 || draw.one_in(2)) return;
  object["blind_tokens"] = json::array({draw.below(lengths.tokens())});
}

// Pages of whole groups of rows, unless one in six.
void make_pages_whole(Draw& draw, const RandomLengths& lengths, json& cache) {
  add_pages(draw, lengths, cache);
  if (cache["page_size"].get<std::int64_t>() % 8 == 0 || draw.one_in(6)) return;
  cache["page_size"] = draw.pick({8, 16, 24, 64, 128});
  cache.erase("unassigned");
}

// New tokens of decoding, of speculation, or of a chunk of a prompt.
json random_tiled(Draw& draw) {
  const auto most_new = draw.pick<std::int64_t>({1, 4, 16, 70});
  // Now and then so long that tiles are cut along their keys; the oracle takes its time for those.
  const bool is_long = most_new == 16 && draw.one_in(3);
  const RandomLengths lengths = random_lengths(draw, most_new, is_long ? 3500 : 700);
  const char* q_dtype = draw.pick<const char*>({"bf16", "bf16", "f16"});
  json cache{{"head_dim", draw.pick({64, 64, 80, 96, 112, 128, 128, 128, 192, 256, 512, 512})},
             {"kv_heads", 1 + draw.below(3)},
             {"dtype", draw.one_in(3) ? "fp8_e4m3" : q_dtype}};
  if (cache["dtype"] == "fp8_e4m3" && draw.one_in(3)) {
    cache["row_format"] = "scaled";
    cache["scales"] = "static";
  }
  if (draw.one_in(4)) cache["split"] = true;
  make_pages_whole(draw, lengths, cache);
  json object{{"lengths", lengths.json()}, {"q_dtype", q_dtype}, {"mask", random_interval(draw)}};
  object["heads"] = cache["kv_heads"].get<int>() *
                    (is_long ? draw.pick({2, 4}) : draw.pick({1, 2, 3, 4, 7, 8, 16, 32}));
  // Products of e4m3 sum with 13 bits, where scores of bf16 keep 8. Of a few LSEs the naive error
  // may by chance be next to nothing, and then does not say what such an evaluation loses.
  if (cache["dtype"] == "fp8_e4m3" && lengths.tokens() * object["heads"].get<int>() < 8) {
    object["heads"] = 8 * cache["kv_heads"].get<int>();
  }
  if (cache["head_dim"] == 192 && draw.one_in(2)) object["value_dim"] = 128;
  object["cache"] = cache;
  if (draw.one_in(6)) add_tree(draw, lengths, object);
  add_modifiers(draw, object);
  if (cache["dtype"] == "fp8_e4m3" && draw.one_in(2)) object["allow_fp8_products"] = true;
  return object;
}

// Pages that every sequence with new tokens has in its cache, shared by all.
void share_pages(Draw& draw, json& object) {
  if (object["cache"].contains("unassigned")) return;
  const json& lengths = object["lengths"];
  std::int64_t least = 1 << 20;
  for (std::size_t i = 0; i < lengths["new"].size(); ++i) {
    if (lengths["new"][i] > 0) least = std::min(least, lengths["cached"][i].get<std::int64_t>());
  }
  const std::int64_t pages = least / object["cache"]["page_size"].get<std::int64_t>();
  if (pages == 0 || least == 1 << 20) return;
  object["shared_prefix_pages"] = 1 + draw.below(pages);
  if (draw.one_in(4)) return;
  // What the kernel for it takes.
  object["mask"] = draw.pick<const char*>({"causal", "causal", "full"});
  for (const char* other : {"alibi", "batch_invariant", "blind_tokens"}) object.erase(other);
}

// K and V without pages.
void make_ragged(Draw& draw, json& object) {
  json& cache = object["cache"];
  const std::string dtype = cache.value("dtype", "bf16");
  if (cache.contains("mla") || dtype == "i8" || cache.value("row_format", "uniform") != "uniform") {
    return;
  }
  object["ragged"] = true;
  cache.erase("unassigned");
  if (draw.one_in(3)) add_keys(draw, object);
}

// Lists of blocks: of whole pages, as the decode kernels take them, or of any number of keys.
void add_blocks(Draw& draw, json& object) {
  const auto page_size = object["cache"]["page_size"].get<std::int64_t>();
  const std::int64_t whole = page_size * draw.pick<std::int64_t>({1, 1, 2, 4});
  const std::int64_t any = draw.pick<std::int64_t>({1, 2, 5, 16, 63, 64, 128});
  object["key_blocks"] = {
      {"max_blocks", draw.pick({1, 2, 3, 5, 9, 33})},
      {"block_size", draw.one_in(2) ? whole : any},
      {"lists", draw.pick<const char*>({"chosen", "chosen", "hostile", "hostile", "none"})}};
  if (draw.one_in(2)) return;
  object["mask"] = draw.pick<const char*>({"causal", "causal", "full"});
  for (const char* other : {"alibi", "batch_invariant", "blind_tokens"}) object.erase(other);
}

}  // namespace

json random_flash_attention(Draw& draw) {
  json object = draw.is_small() || draw.one_in(3) ? random_any(draw) : random_tiled(draw);
  if (draw.one_in(4)) {
    share_pages(draw, object);
  } else if (draw.one_in(4)) {
    add_keys(draw, object);
  } else if (draw.one_in(4)) {
    make_ragged(draw, object);
  }
  if (draw.one_in(5)) add_blocks(draw, object);
  if (!object.contains("ragged") && draw.one_in(6)) {
    use_int4(draw, object["cache"]);
    object.erase("allow_fp8_products");
  }
  return object;
}

}  // namespace quire::test
