// SPDX-License-Identifier: Apache-2.0
// bf16 to and from f32.
#pragma once

#include <cstdint>

#include <hwy/highway.h>
#include "cpu/simd/tile.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

namespace hn = hwy::HWY_NAMESPACE;

inline float f32_from_bf16(std::uint16_t code) {
  const std::uint32_t bits = std::uint32_t{code} << 16;
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// To nearest, ties to even; NaN stays NaN.
inline std::uint16_t bf16_from_f32(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// The even elements of pairs (even, odd) in 32-bit lanes, and the odd ones, as f32.
template <typename Pairs> inline auto even_as_f32(Pairs pairs) {
  return hn::BitCast(hn::ScalableTag<float>(), hn::ShiftLeft<16>(pairs));
}
template <typename Pairs> inline auto odd_as_f32(Pairs pairs) {
  const hn::ScalableTag<std::uint32_t> u32;
  return hn::BitCast(hn::ScalableTag<float>(), hn::And(pairs, hn::Set(u32, 0xffff0000u)));
}

// As many pairs as a vector has f32 lanes.
inline auto load_pairs(const std::uint16_t* pairs) {
  const hn::ScalableTag<std::uint32_t> u32;
  const hn::ScalableTag<std::uint8_t> u8;
  return hn::BitCast(u32, hn::LoadU(u8, reinterpret_cast<const std::uint8_t*>(pairs)));
}
// One pair in every lane.
inline auto broadcast_pair(const std::uint16_t* pair) {
  std::uint32_t both;
  __builtin_memcpy(&both, pair, sizeof(both));
  return hn::Set(hn::ScalableTag<std::uint32_t>(), both);
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
