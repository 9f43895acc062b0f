// SPDX-License-Identifier: Apache-2.0
// Random problems of fused_qkv_matmul and linear: every format of weights and rows, and, two times of three where
// problems are large, what the tile kernels are made for. Small ones are drawn from the whole product of formats, dtypes of x,
// scales, permutations and packings, with K on both sides of every step that a kernel takes.
#include <algorithm>

#include "core/block_format.h"
#include "fuzz/problems/random_case.h"

namespace quire::test {
namespace {

using nlohmann::json;

// Rows of heads, or latent rows of an MLA cache; `width` becomes the columns of a token's K.
json random_rows(Draw& draw, const RandomLengths& lengths, bool is_usual, std::int64_t& width) {
  if (draw.one_in(6)) {
    json cache = random_latent_cache(draw, lengths);
    cache["mla"] = true;
    if (is_usual) cache["latent"] = 512, cache["rope"] = 64;
    if (is_usual && cache.contains("granularity")) cache["granularity"] = 128;
    width = cache["latent"].get<std::int64_t>() + cache["rope"].get<std::int64_t>();
    return cache;
  }
  const std::int64_t head_dim =
      is_usual ? draw.pick({64, 96, 128, 128, 256})
               : draw.pick({1, 2, 5, 7, 8, 16, 17, 24, 33}, {7, 8, 24, 33, 80});
  json cache = is_usual ? random_head_cache(draw, lengths, head_dim, {32, 64})
                        : random_head_cache(draw, lengths, head_dim, {5, 8});
  if (draw.one_in(6)) use_int4(draw, cache);
  width = head_dim * cache["kv_heads"].get<std::int64_t>();
  return cache;
}

// Products of one dtype, or of fp8 with scales of any kind on either side. Tiles want rows of 16 bytes.
void add_plain_weight(Draw& draw, bool is_usual, json& object) {
  const std::int64_t step = is_usual ? 16 : 1;
  object["hidden"] = step * (1 + draw.below(640 / step));
  if (draw.one_in(2)) {
    const std::string dtype = draw.pick<const char*>({"bf16", "bf16", "f16", "f32", "f32"});
    object["x_dtype"] = dtype;
    object["weight"] = {{"dtype", dtype}};
    if (dtype == "f32" && draw.one_in(2)) object["allow_tf32"] = true;
    return;
  }
  const char* narrow = draw.one_in(8) ? "fp8_e5m2" : "fp8_e4m3";
  object["x_dtype"] = draw.one_in(8) ? "bf16" : "fp8_e4m3";
  object["weight"] = {{"format", "fp8"},
                      {"dtype", narrow},
                      {"scale", draw.pick<const char*>({"tensor", "channel", "block"})}};
  if (object["x_dtype"] == "bf16") return;
  object["input_scale"] = draw.pick<const char*>({"tensor", "token", "block"});
  object["out_dtype"] = draw.pick<const char*>({"bf16", "bf16", "f16", "f32"});
  if (draw.one_in(2)) object["allow_fast_accum"] = true;
}

// K of a GGUF weight of so many blocks.
std::int64_t depth_of(const std::string& format, std::int64_t blocks) {
  return block_format(*weight_format_from_name(format)).columns * blocks;
}

bool is_gguf(const std::string& format) {
  return is_block_format(*weight_format_from_name(format));
}

std::string random_gguf(Draw& draw) {
  return draw.pick<const char*>(
      {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "mxfp4", "q4_k", "q5_k", "q6_k"});
}

// Zero points that four bits cannot hold, which plain weights may have; packing refuses those above 16 on a CPU.
void widen_zeros(Draw& draw, json& object) {
  json& weight = object["weight"];
  if (weight["format"] != "int4" || !weight.value("zeros", false)) return;
  if (!object.value("packed", false) && draw.one_in(2)) {
    weight["largest_zero"] = draw.pick({16, 17, 31, 255});
  }
}

// Codes of four bits in groups, or blocks of GGUF.
void add_coded_weight(Draw& draw, json& object) {
  object["x_dtype"] = random_float(draw);
  if (draw.one_in(4)) {
    const std::string format = random_gguf(draw);
    const bool is_large = format.ends_with("_k");
    object["hidden"] = depth_of(format, is_large ? draw.between(1, 2) : draw.between(1, 12));
    object["weight"] = {{"format", format}};
  } else {
    const std::string format = draw.pick<const char*>({"int4", "gptq", "gptq_v2", "awq"});
    const std::int64_t group = draw.pick({32, 64, 128});
    object["hidden"] = group * (1 + draw.below(768 / group));
    object["weight"] = {{"format", format},
                        {"group_size", group},
                        {"zeros", draw.one_in(2)},
                        {"scale_dtype", draw.pick<const char*>({"f16", "bf16", "f32"})}};
    if (format != "awq" && draw.one_in(6)) object["weight"]["perm"] = true;
    if (format == "awq") object["weight"]["scale_dtype"] = "f16";
  }
  if (draw.one_in(2)) object["packed"] = true;
  widen_zeros(draw, object);
}

// Any weight that a case can hold. K is any number for dense and fp8 weights, whole groups or blocks for the rest.
json random_weight(Draw& draw, std::int64_t& hidden) {
  const std::string family = draw.pick<const char*>(
      {"dense", "dense", "fp8", "fp8", "int4", "gptq", "gptq_v2", "awq", "gguf", "gguf", "gguf"});
  const std::string format = family == "gguf" ? random_gguf(draw) : family;
  json weight{{"format", format}};
  hidden =
      draw.pick({1,  2,  3,  7,  8,   9,   15,  16,  17,  24,  31,  32,  33,  40,  48,  56,  63,
                 64, 65, 72, 96, 100, 120, 127, 128, 129, 136, 152, 160, 184, 200, 257, 264, 280});
  if (format == "dense") weight["dtype"] = draw.pick<const char*>({"bf16", "bf16", "f16", "f32"});
  if (format == "fp8") {
    weight["dtype"] = draw.one_in(4) ? "fp8_e5m2" : "fp8_e4m3";
    weight["scale"] = draw.pick<const char*>({"tensor", "channel", "block"});
  }
  if (is_gguf(format)) {
    hidden =
        depth_of(format, format.ends_with("_k") ? draw.pick({1, 1, 1, 2}) : draw.between(1, 6));
  }
  if (format == "int4" || format == "gptq" || format == "gptq_v2" || format == "awq") {
    const std::int64_t group = draw.pick({32, 32, 64, 128});
    weight["group_size"] = group;
    weight["zeros"] = draw.one_in(2);
    weight["scale_dtype"] = draw.pick<const char*>({"f16", "bf16", "f32"});
    hidden = group * draw.between(1, std::max<std::int64_t>(1, 256 / group));
  }
  if (draw.one_in(3)) weight["perm"] = true;
  return weight;
}

// The dtype of x, and all that a call may choose, for a weight of any format.
void add_small_options(Draw& draw, json& object) {
  object["x_dtype"] =
      draw.pick<const char*>({"bf16", "bf16", "f16", "f32", "fp8_e4m3", "fp8_e4m3", "fp8_e5m2"});
  const bool is_fp8 = object["x_dtype"].get<std::string>().starts_with("fp8");
  if (is_fp8) object["input_scale"] = draw.pick<const char*>({"tensor", "token", "block", "block"});
  if (draw.one_in(3)) object["out_dtype"] = draw.pick<const char*>({"bf16", "f16", "f32"});
  if (draw.one_in(2)) object["packed"] = true;
  widen_zeros(draw, object);
  if (draw.one_in(3)) object["bias"] = true;
  const std::string format = object["weight"]["format"];
  const bool has_integers = format != "dense" && format != "fp8" && !format.ends_with("_k");
  if (has_integers && !is_fp8 && draw.one_in(3)) object["activations"] = "int8";
  if (draw.one_in(8)) object["allow_fast_accum"] = true;
  if (draw.one_in(8)) object["allow_tf32"] = true;
  if (draw.one_in(6)) object["batch_invariant"] = true;
}

json random_small(Draw& draw) {
  const auto most_new = draw.pick<std::int64_t>({1, 2, 5, 17});
  const RandomLengths lengths = random_lengths(draw, most_new, 20);
  json object{{"lengths", lengths.json()}};
  std::int64_t width = 0;
  std::int64_t hidden = 1;
  object["cache"] = random_rows(draw, lengths, /*is_usual=*/false, width);
  object["weight"] = random_weight(draw, hidden);
  object["hidden"] = hidden;
  const std::int64_t kv_dim = object["cache"].contains("mla") ? width : 2 * width;
  const std::int64_t step = object["weight"].contains("group_size") ? 8 : 1;
  object["q_dim"] = step * draw.pick({0, 0, 1, 2, 3, 5}) + (step - kv_dim % step) % step;
  if (step == 1) object["q_dim"] = draw.pick({0, 1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 40});
  add_small_options(draw, object);
  return object;
}

// In the dtype of out, if there is one.
void narrow_bias(Draw& draw, json& object) {
  if (!object.value("bias", false) || !draw.one_in(2)) return;
  const std::string x = object.value("x_dtype", "bf16");
  object["bias_dtype"] = object.value("out_dtype", x.starts_with("fp8") ? "bf16" : x);
}

// Words of eight rows hold the codes of AWQ, and the zeros of GPTQ.
json random_small_linear(Draw& draw) {
  json object{{"tokens", draw.pick({0, 1, 1, 1, 2, 3, 5, 8, 17, 33})}};
  std::int64_t hidden = 1;
  object["weight"] = random_weight(draw, hidden);
  object["hidden"] = hidden;
  const std::string format = object["weight"]["format"];
  object["columns"] = format == "awq" || format.starts_with("gptq")
                          ? 8 * draw.pick({0, 1, 2, 3, 5, 9})
                          : draw.pick({0, 1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 40, 65, 130});
  add_small_options(draw, object);
  narrow_bias(draw, object);
  return object;
}

}  // namespace

json random_linear(Draw& draw) {
  if (draw.is_small() || draw.one_in(6)) return random_small_linear(draw);
  const bool is_usual = !draw.one_in(3);
  const std::int64_t step = is_usual ? 32 : 8;
  json object{{"tokens", draw.pick({1, 2, 4, 16, 17, 64, 70, 130})},
              {"columns", step * (1 + draw.below(768 / step))}};
  if (draw.one_in(4)) {
    add_coded_weight(draw, object);
  } else {
    add_plain_weight(draw, is_usual, object);
  }
  if (draw.one_in(3)) object["bias"] = true;
  narrow_bias(draw, object);
  return object;
}

json random_fused_qkv_matmul(Draw& draw) {
  if (draw.is_small() || draw.one_in(6)) return random_small(draw);
  const bool is_usual = !draw.one_in(3);
  const auto most_new = draw.pick<std::int64_t>({1, 4, 16, 70});
  const RandomLengths lengths = random_lengths(draw, most_new, 300);
  json object{{"lengths", lengths.json()}};
  std::int64_t width = 0;
  object["cache"] = random_rows(draw, lengths, is_usual, width);
  // All rows of the weight come in eights for AWQ, in 32s for tiles.
  const std::int64_t kv_dim = object["cache"].contains("mla") ? width : 2 * width;
  const std::int64_t step = is_usual ? 32 : 8;
  object["q_dim"] = step * (1 + draw.below(512 / step)) + (step - kv_dim % step) % step;
  if (draw.one_in(4)) {
    add_coded_weight(draw, object);
  } else {
    add_plain_weight(draw, is_usual, object);
  }
  if (draw.one_in(3)) object["bias"] = true;
  return object;
}

}  // namespace quire::test
