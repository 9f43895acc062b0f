// SPDX-License-Identifier: Apache-2.0
// The block formats of GGUF files, described once: a row of K weights is K / columns blocks of `bytes` bytes.
//
// Blocks of 32 columns are all made of the same parts, at the offsets given here:
//   scale   d: f16, or the byte e of an E8M0 exponent, d = 2^(e − 128), half of what OCP's MX gives it
//   min     m: f16
//   high    32 bits: bit i is bit 4 of the code of column i
//   codes   4 bits: byte i holds column i (low) and column i + 16 (high); 8 bits: byte i holds column i
//   w = d · number (+ m), number = values[code] for 4-bit codes, code − zero for 5 bits, the i8 itself for 8
// Blocks of 256 columns have orders of their own (docs/layouts.md).
//
// Host and device: a kernel reads the description in constant expressions alone.
#pragma once

#include <cstdint>

#include "quire/weight.h"

namespace quire {

struct BlockFormat {
  WeightFormat format;
  int columns;
  int bytes;
  int code_bits;   // 4, 5, 6 or 8
  int group = 32;  // columns that share a scale
  bool is_e8m0 = false;
  // Where the block keeps its parts; -1: nowhere.
  int scale_at = 0;
  int min_at = -1;  // f16
  int high_at = -1;
  int codes_at = -1;
  int zero = 0;
  bool has_table = false;                // numbers are not code − zero
  alignas(16) signed char values[16]{};  // 4 bits, 32 columns: the number of each code

  // w = scale · number + min, both of the group.
  constexpr bool has_mins() const { return min_at >= 0; }
  // Numbers share a scale over the whole block.
  constexpr bool is_one_group() const { return columns == group; }
};

inline constexpr BlockFormat kBlockFormats[] = {
    {.format = WeightFormat::q4_0,
     .columns = 32,
     .bytes = 18,
     .code_bits = 4,
     .codes_at = 2,
     .zero = 8,
     .values = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7}},
    {.format = WeightFormat::q4_1,
     .columns = 32,
     .bytes = 20,
     .code_bits = 4,
     .min_at = 2,
     .codes_at = 4,
     .values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
    {.format = WeightFormat::q5_0,
     .columns = 32,
     .bytes = 22,
     .code_bits = 5,
     .high_at = 2,
     .codes_at = 6,
     .zero = 16},
    {.format = WeightFormat::q5_1,
     .columns = 32,
     .bytes = 24,
     .code_bits = 5,
     .min_at = 2,
     .high_at = 4,
     .codes_at = 8},
    {.format = WeightFormat::q8_0, .columns = 32, .bytes = 34, .code_bits = 8, .codes_at = 2},
    {.format = WeightFormat::iq4_nl,
     .columns = 32,
     .bytes = 18,
     .code_bits = 4,
     .codes_at = 2,
     .has_table = true,
     .values = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}},
    // E2M1 numbers doubled, which the halved scale undoes.
    {.format = WeightFormat::mxfp4,
     .columns = 32,
     .bytes = 17,
     .code_bits = 4,
     .is_e8m0 = true,
     .codes_at = 1,
     .has_table = true,
     .values = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}},
    {.format = WeightFormat::q4_k, .columns = 256, .bytes = 144, .code_bits = 4, .min_at = 2},
    {.format = WeightFormat::q5_k, .columns = 256, .bytes = 176, .code_bits = 5, .min_at = 2},
    {.format = WeightFormat::q6_k,
     .columns = 256,
     .bytes = 210,
     .code_bits = 6,
     .group = 16,
     .scale_at = 208},
};

// Null for weights that are not made of such blocks.
constexpr const BlockFormat* find_block_format(WeightFormat format) {
  for (const BlockFormat& block : kBlockFormats) {
    if (block.format == format) return &block;
  }
  return nullptr;
}

constexpr bool is_block_format(WeightFormat format) {
  return find_block_format(format) != nullptr;
}

// For formats that have one.
constexpr const BlockFormat& block_format(WeightFormat format) {
  return *find_block_format(format);
}

// int4, gptq, gptq_v2, awq: 4-bit codes with scales in a tensor of their own.
constexpr bool is_grouped_format(WeightFormat format) {
  return format >= WeightFormat::int4 && format <= WeightFormat::awq;
}

// Whether numbers are 8-bit integers at most and share a scale over enough columns for products of integers.
constexpr bool takes_int8_activations(WeightFormat format) {
  if (is_grouped_format(format)) return true;
  const BlockFormat* block = find_block_format(format);
  return block != nullptr && block->is_one_group();
}

}  // namespace quire
