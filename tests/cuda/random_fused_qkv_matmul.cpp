// SPDX-License-Identifier: Apache-2.0
// Random problems of fused_qkv_matmul: every format of weights and rows, and, two times of three, what the tile
// kernels are made for.
#include <algorithm>

#include "random_case.h"

namespace quire::test {
namespace {

using nlohmann::json;

// Rows of heads, or latent rows of an MLA cache; `width` becomes the columns of a token's K.
json random_rows(RandomChoice& choice, const RandomLengths& lengths, bool is_usual,
                 std::int64_t& width) {
  if (choice.one_in(6)) {
    json cache = random_latent_cache(choice, lengths);
    cache["mla"] = true;
    if (is_usual) cache["latent"] = 512, cache["rope"] = 64;
    if (is_usual && cache.contains("granularity")) cache["granularity"] = 128;
    width = cache["latent"].get<std::int64_t>() + cache["rope"].get<std::int64_t>();
    return cache;
  }
  const std::int64_t head_dim =
      is_usual ? choice.pick({64, 96, 128, 128, 256}) : choice.pick({7, 8, 24, 33, 80});
  json cache = is_usual ? random_head_cache(choice, lengths, head_dim, {32, 64})
                        : random_head_cache(choice, lengths, head_dim, {5, 8});
  width = head_dim * cache["kv_heads"].get<std::int64_t>();
  return cache;
}

// Products of one dtype, or of fp8 with scales of any kind on either side. Tiles want rows of 16 bytes.
void add_plain_weight(RandomChoice& choice, bool is_usual, json& object) {
  const std::int64_t step = is_usual ? 16 : 1;
  object["hidden"] = step * (1 + choice.below(640 / step));
  if (choice.one_in(2)) {
    const std::string dtype = choice.pick<const char*>({"bf16", "bf16", "f16", "f32", "f32"});
    object["x_dtype"] = dtype;
    object["weight"] = {{"dtype", dtype}};
    if (dtype == "f32" && choice.one_in(2)) object["allow_tf32"] = true;
    return;
  }
  const char* narrow = choice.one_in(8) ? "fp8_e5m2" : "fp8_e4m3";
  object["x_dtype"] = choice.one_in(8) ? "bf16" : "fp8_e4m3";
  object["weight"] = {{"format", "fp8"},
                      {"dtype", narrow},
                      {"scale", choice.pick<const char*>({"tensor", "channel", "block"})}};
  if (object["x_dtype"] == "bf16") return;
  object["input_scale"] = choice.pick<const char*>({"tensor", "token", "block"});
  object["out_dtype"] = choice.pick<const char*>({"bf16", "bf16", "f16", "f32"});
  if (choice.one_in(2)) object["allow_fast_accum"] = true;
}

// Codes of four bits in groups, or blocks of GGUF.
void add_coded_weight(RandomChoice& choice, json& object) {
  object["x_dtype"] = random_float(choice);
  if (choice.one_in(4)) {
    const std::string format = choice.pick<const char*>({"q4_0", "q8_0", "q4_k", "q6_k"});
    const bool is_small = format == "q4_0" || format == "q8_0";
    object["hidden"] = is_small ? 32 * (1 + choice.below(12)) : 256 * (1 + choice.below(2));
    object["weight"] = {{"format", format}};
  } else {
    const std::string format = choice.pick<const char*>({"int4", "gptq", "gptq_v2", "awq"});
    const std::int64_t group = choice.pick({32, 64, 128});
    object["hidden"] = group * (1 + choice.below(768 / group));
    object["weight"] = {{"format", format},
                        {"group_size", group},
                        {"zeros", choice.one_in(2)},
                        {"scale_dtype", choice.pick<const char*>({"f16", "bf16", "f32"})}};
    if (format != "awq" && choice.one_in(6)) object["weight"]["perm"] = true;
    if (format == "awq") object["weight"]["scale_dtype"] = "f16";
  }
  if (choice.one_in(2)) object["packed"] = true;
}

}  // namespace

json random_fused_qkv_matmul(RandomChoice& choice) {
  const bool is_usual = !choice.one_in(3);
  const auto most_new = choice.pick<std::int64_t>({1, 4, 16, 70});
  const RandomLengths lengths = random_lengths(choice, most_new, 300);
  json object{{"lengths", lengths.json()}};
  std::int64_t width = 0;
  object["cache"] = random_rows(choice, lengths, is_usual, width);
  // All rows of the weight come in eights for AWQ, in 32s for tiles.
  const std::int64_t kv_dim = object["cache"].contains("mla") ? width : 2 * width;
  const std::int64_t step = is_usual ? 32 : 8;
  object["q_dim"] = step * (1 + choice.below(512 / step)) + (step - kv_dim % step) % step;
  if (choice.one_in(4)) {
    add_coded_weight(choice, object);
  } else {
    add_plain_weight(choice, is_usual, object);
  }
  if (choice.one_in(3)) object["bias"] = true;
  return object;
}

}  // namespace quire::test
