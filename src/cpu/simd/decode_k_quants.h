// SPDX-License-Identifier: Apache-2.0
// GGUF super-blocks of 256 columns to f32.
#pragma once

#include "cpu/simd/convert_row.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

inline float f16_at(const std::byte* source) {
  std::uint16_t code;
  __builtin_memcpy(&code, source, sizeof(code));
  return f32_from_f16(code);
}

struct ScaleMin {
  int scale;
  int min;
};

// Six-bit scale and min of group g (32 columns) of a Q4_K or Q5_K block: groups 0..3 in bytes g and g + 4,
// groups 4..7 in byte g + 4 and the top bits of bytes g − 4 and g.
inline ScaleMin q4_k_scale(const std::byte* packed, std::int64_t g) {
  const auto at = [packed](std::int64_t i) { return static_cast<int>(packed[i]); };
  if (g < 4) return {at(g) & 63, at(g + 4) & 63};
  return {(at(g + 4) & 15) | ((at(g - 4) >> 6) << 4), (at(g + 4) >> 4) | ((at(g) >> 6) << 4)};
}

inline int q4_k_code(const std::byte* block, std::int64_t column) {
  const auto byte = static_cast<int>(block[16 + column / 64 * 32 + column % 32]);
  return column / 32 % 2 == 0 ? byte & 15 : byte >> 4;
}

// Bit 4 of column i of group g is bit g of byte i; the low nibbles stand as in Q4_K, 32 bytes later.
inline int q5_k_code(const std::byte* block, std::int64_t column) {
  const int high = static_cast<int>(block[16 + column % 32]) >> (column / 32) & 1;
  return q4_k_code(block + 32, column) | high << 4;
}

// 0 … 63, for −32 … 31.
inline int q6_k_code(const std::byte* block, std::int64_t column) {
  const std::int64_t half = column / 128;
  const std::int64_t quarter = column % 128 / 32;  // 32 columns that share bit positions
  const std::int64_t lane = column % 32;
  const auto low_byte = static_cast<int>(block[half * 64 + quarter % 2 * 32 + lane]);
  const int low = quarter < 2 ? low_byte & 15 : low_byte >> 4;
  const int high = (static_cast<int>(block[128 + half * 32 + lane]) >> (2 * quarter)) & 3;
  return low | (high << 4);
}

// Step and min of a group: w = step · code + min.
struct GroupFactors {
  float step;
  float min;
};
inline GroupFactors k_group_factors(const std::byte* block, std::int64_t g) {
  const auto [scale, min] = q4_k_scale(block + 4, g);
  return {f16_at(block) * static_cast<float>(scale),
          -(f16_at(block + 2) * static_cast<float>(min))};
}

inline void decode_q4_k(const std::byte* block, float* out) {
  for (std::int64_t g = 0; g < 8; ++g) {
    const auto [step, min] = k_group_factors(block, g);
    const std::byte* codes = block + 16 + g / 2 * 32;
    for (std::int64_t i = 0; i < 32; ++i) {
      const auto byte = static_cast<int>(codes[i]);
      const int code = g % 2 == 0 ? byte & 15 : byte >> 4;
      out[32 * g + i] = step * static_cast<float>(code) + min;
    }
  }
}

inline void decode_q5_k(const std::byte* block, float* out) {
  for (std::int64_t g = 0; g < 8; ++g) {
    const auto [step, min] = k_group_factors(block, g);
    const std::byte* codes = block + 48 + g / 2 * 32;
    for (std::int64_t i = 0; i < 32; ++i) {
      const auto byte = static_cast<int>(codes[i]);
      const int low = g % 2 == 0 ? byte & 15 : byte >> 4;
      const int high = static_cast<int>(block[16 + i]) >> g & 1;
      out[32 * g + i] = step * static_cast<float>(low | high << 4) + min;
    }
  }
}

inline void decode_q6_k(const std::byte* block, float* out) {
  const float d = f16_at(block + 208);
  for (std::int64_t column = 0; column < 256; ++column) {
    const int scale = static_cast<std::int8_t>(block[192 + column / 16]);
    // The two integers' product is exact: one rounding.
    out[column] = d * static_cast<float>(scale * (q6_k_code(block, column) - 32));
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
