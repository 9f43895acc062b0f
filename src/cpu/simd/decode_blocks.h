// SPDX-License-Identifier: Apache-2.0
// GGUF blocks of 32 columns (core/block_format.h) to bare numbers: integers that are exact in bf16, without the block's
// scale and min.
#pragma once

#include "core/block_format.h"
#include "cpu/simd/convert_bf16.h"
#include "cpu/simd/decode_k_quants.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

inline float block_scale(const BlockFormat& format, const std::byte* block) {
  if (!format.is_e8m0) return f16_at(block + format.scale_at);
  // 2^(e − 128): the first two are subnormal.
  const auto e = static_cast<std::uint32_t>(block[format.scale_at]);
  const std::uint32_t bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
  return __builtin_bit_cast(float, bits);
}

inline float block_min(const BlockFormat& format, const std::byte* block) {
  return format.has_mins() ? f16_at(block + format.min_at) : 0.0f;
}

inline std::uint32_t block_high_bits(const BlockFormat& format, const std::byte* block) {
  std::uint32_t bits = 0;
  if (format.high_at >= 0) __builtin_memcpy(&bits, block + format.high_at, sizeof(bits));
  return bits;
}

// The code of a column, as the file has it.
inline std::uint32_t block_code(const BlockFormat& format, const std::byte* block,
                                std::int64_t column) {
  const std::byte* codes = block + format.codes_at;
  if (format.code_bits == 8) return static_cast<std::uint32_t>(codes[column]);
  const auto byte = static_cast<std::uint32_t>(codes[column % 16]);
  const std::uint32_t low = column < 16 ? byte & 15u : byte >> 4;
  return low | (block_high_bits(format, block) >> column & 1u) << 4;
}

inline std::int32_t block_number(const BlockFormat& format, const std::byte* block,
                                 std::int64_t column) {
  const std::uint32_t code = block_code(format, block, column);
  if (format.code_bits == 4) return format.values[code];
  if (format.code_bits == 8) return static_cast<std::int8_t>(code);
  return static_cast<std::int32_t>(code) - format.zero;
}

// All 32 numbers.
inline void decode_block(const BlockFormat& format, const std::byte* block, std::uint16_t* out) {
  const std::byte* codes = block + format.codes_at;
  if (format.code_bits == 8) {
    for (int i = 0; i < 32; ++i) {
      out[i] = bf16_from_f32(static_cast<float>(static_cast<std::int8_t>(codes[i])));
    }
    return;
  }
  if (format.code_bits == 4) {
    std::uint16_t values[16];
    for (int code = 0; code < 16; ++code) {
      values[code] = bf16_from_f32(static_cast<float>(format.values[code]));
    }
    for (int i = 0; i < 16; ++i) {
      const auto byte = static_cast<std::uint32_t>(codes[i]);
      out[i] = values[byte & 15u];
      out[i + 16] = values[byte >> 4];
    }
    return;
  }
  const std::uint32_t high = block_high_bits(format, block);
  const auto number = [&](std::uint32_t low, int column) {
    const auto code = static_cast<std::int32_t>(low | (high >> column & 1u) << 4);
    return bf16_from_f32(static_cast<float>(code - format.zero));
  };
  for (int i = 0; i < 16; ++i) {
    const auto byte = static_cast<std::uint32_t>(codes[i]);
    out[i] = number(byte & 15u, i);
    out[i + 16] = number(byte >> 4, i + 16);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
