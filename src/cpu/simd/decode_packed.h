// SPDX-License-Identifier: Apache-2.0
// Panels of a packed weight for the engines: bare numbers in bf16, or values in f32.
#pragma once

#include "cpu/simd/packed_numbers.h"

#if defined(__AVX512BW__)
#include "cpu/simd/decode_packed_avx512.h"
#endif

namespace quire::cpu::QUIRE_CPU_TARGET {

inline const std::byte* packed_block(const WeightView& w, std::int64_t panel, std::int64_t k) {
  return w.data + panel * w.packed.panel_bytes + k * w.packed.width * w.packed.bits / 8;
}

// Numbers exact in bf16, as pairs (k, k + 1): the upper halves of two f32.
inline U32Vector bf16_pair(F32Vector even, F32Vector odd) {
  const U32Tag u32;
  return hn::Or(hn::ShiftRight<16>(hn::BitCast(u32, even)),
                hn::And(hn::BitCast(u32, odd), hn::Set(u32, 0xffff0000u)));
}

// Columns [k, k + depth) of W, multiples of 8, of one panel, in the order of a B panel.
template <typename Numbers>
inline void decode_packed_bf16(const Numbers& numbers, const WeightView& w, std::int64_t panel,
                               std::int64_t k, std::int64_t depth, std::uint16_t* out) {
  const std::int64_t width = w.packed.width;
  const bool is_quad = w.packed.packing == WeightPacking::quads_8;
  const PackedScales scales(w, panel);
  const std::byte* source = packed_block(w, panel, k);
  auto* pairs = reinterpret_cast<std::uint32_t*>(out);
  const U32Tag u32;
  for (std::int64_t at = 0; at < depth; at += 8, source += width * Numbers::kBits) {
    for (std::int64_t column = 0; column < width; column += kF32Lanes) {
      F32Vector rows[8];
      numbers.load(source + Numbers::kColumnBytes * column, width,
                   scales.zeros((k + at) / w.group, column, has_middle_zero(w)), rows);
      for (int pair = 0; pair < 4; ++pair) {
        const U32Vector both = bf16_pair(rows[2 * pair], rows[2 * pair + 1]);
        if (!is_quad) {
          hn::StoreU(both, u32, pairs + (at / 2 + pair) * width + column);
          continue;
        }
        alignas(64) std::uint32_t lanes[kF32Lanes];
        hn::StoreU(both, u32, lanes);
        std::uint32_t* quad = pairs + (at / 4 + pair / 2) * 2 * width + 2 * column + pair % 2;
        for (int lane = 0; lane < kF32Lanes; ++lane) quad[2 * lane] = lanes[lane];
      }
    }
  }
}

inline void decode_packed_bf16(const WeightView& w, std::int64_t panel, std::int64_t k,
                               std::int64_t depth, std::uint16_t* out) {
#if defined(__AVX512BW__)
  if (decode_packed_registers(w, panel, k, depth, out)) return;
#endif
  on_numbers(w, [&](auto numbers) { decode_packed_bf16(numbers, w, panel, k, depth, out); });
}

// Bare numbers, or with their scales and mins.
enum class Decoded : std::uint8_t { numbers, values };

// In f32: out[(k' − k) · stride + column].
template <typename Numbers>
inline void decode_packed_f32(const Numbers& numbers, const WeightView& w, std::int64_t panel,
                              std::int64_t k, std::int64_t depth, float* out, std::int64_t stride,
                              Decoded decoded) {
  const bool is_scaled = decoded == Decoded::values && w.packed.group != 0;
  const bool has_mins = is_scaled && w.packed.has_mins;
  const std::int64_t width = w.packed.width;
  const PackedScales scales(w, panel);
  const F32Tag f32;
  alignas(64) float factors[32];
  alignas(64) float mins[32];
  std::int64_t group = -1;
  for (std::int64_t at = 0; at < depth; at += 8) {
    const std::byte* source = packed_block(w, panel, k + at);
    if (w.packed.group != 0 && (k + at) / w.group != group) {
      group = (k + at) / w.group;
      if (is_scaled) scales.load(group, 1, factors, width);
      if (has_mins) scales.load_mins(group, 1, mins, width);
    }
    for (std::int64_t column = 0; column < width; column += kF32Lanes) {
      F32Vector rows[8];
      const U32Vector zeros = w.packed.group == 0 ? hn::Zero(U32Tag())
                                                  : scales.zeros(group, column, has_middle_zero(w));
      numbers.load(source + Numbers::kColumnBytes * column, width, zeros, rows);
      for (int i = 0; i < 8; ++i) {
        if (has_mins) {  // number · scale has 24 bits at most: one rounding, fused or not
          rows[i] =
              hn::MulAdd(rows[i], hn::LoadU(f32, factors + column), hn::LoadU(f32, mins + column));
        } else if (is_scaled) {
          rows[i] = hn::Mul(rows[i], hn::LoadU(f32, factors + column));
        }
        if (at + i < depth) hn::StoreU(rows[i], f32, out + (at + i) * stride + column);
      }
    }
  }
}

inline void decode_packed_f32(const WeightView& w, std::int64_t panel, std::int64_t k,
                              std::int64_t depth, float* out, std::int64_t stride,
                              Decoded decoded) {
  if (w.codes == Codes::f32) {
    for (std::int64_t at = 0; at < depth; ++at) {
      __builtin_memcpy(out + at * stride, packed_block(w, panel, k + at),
                       static_cast<std::size_t>(w.packed.width) * sizeof(float));
    }
    return;
  }
  on_numbers(w, [&](auto numbers) {
    decode_packed_f32(numbers, w, panel, k, depth, out, stride, decoded);
  });
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
