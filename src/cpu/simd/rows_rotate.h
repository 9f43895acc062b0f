// SPDX-License-Identifier: Apache-2.0
// Rotary embedding of the columns of one row.
#pragma once

#include "cpu/simd/rows_lanes.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Floats that a row of columns takes where whole vectors are read and written.
inline std::int64_t padded_columns(std::int64_t columns) {
  return (columns + kF32Lanes - 1) / kF32Lanes * kF32Lanes + kF32Lanes;
}

// One token's angles as the rotation reads them.
//   half-split:  cos [rope_dim / 2], sin [rope_dim / 2]
//   interleaved: cos and sin [rope_dim], each twice, the first sin of a pair negative
// Padded to whole vectors.
struct RotationAngles {
  float* wide;  // [rope_dim] as freqs_cis has them
  float* cos;
  float* sin;

  static std::int64_t num_floats(std::int64_t rope_dim) { return 3 * padded_columns(rope_dim); }
  RotationAngles(float* memory, std::int64_t rope_dim)
      : wide(memory), cos(wide + padded_columns(rope_dim)), sin(cos + padded_columns(rope_dim)) {}

  // cos and sin from wide.
  void arrange(std::int64_t rope_dim, bool interleaved) const {
    if (!interleaved) {
      for (std::int64_t j = 0; j < rope_dim / 2; ++j) {
        cos[j] = wide[2 * j];
        sin[j] = wide[2 * j + 1];
      }
      return;
    }
    const F32Tag f32;
    for (std::int64_t i = 0; i < rope_dim; i += kF32Lanes) {
      const F32Vector pairs = hn::LoadU(f32, wide + i);
      const F32Vector sines = hn::DupOdd(pairs);
      hn::StoreU(hn::DupEven(pairs), f32, cos + i);
      hn::StoreU(hn::OddEven(sines, hn::Neg(sines)), f32, sin + i);
    }
  }
};

// from and to: the first rotated column; they may be the same.
template <DType kFrom, DType kTo>
inline void rotate_halves(const RotationAngles& angles, std::int64_t rope_dim,
                          const std::byte* from, std::byte* to) {
  const F32Tag f32;
  const std::int64_t half = rope_dim / 2;
  over_lanes(half, [&](std::int64_t i, auto lanes) {
    const F32Vector a = load_lanes<kFrom>(from + i * kElementBytes<kFrom>, lanes);
    const F32Vector b = load_lanes<kFrom>(from + (i + half) * kElementBytes<kFrom>, lanes);
    const F32Vector cos = hn::LoadU(f32, angles.cos + i);
    const F32Vector sin = hn::LoadU(f32, angles.sin + i);
    store_lanes<kTo>(hn::NegMulAdd(b, sin, hn::Mul(a, cos)), to + i * kElementBytes<kTo>, lanes);
    store_lanes<kTo>(hn::MulAdd(b, cos, hn::Mul(a, sin)), to + (i + half) * kElementBytes<kTo>,
                     lanes);
  });
}

template <DType kFrom, DType kTo>
inline void rotate_pairs(const RotationAngles& angles, std::int64_t rope_dim, const std::byte* from,
                         std::byte* to) {
  const F32Tag f32;
  over_lanes(rope_dim, [&](std::int64_t i, auto lanes) {
    const F32Vector x = load_lanes<kFrom>(from + i * kElementBytes<kFrom>, lanes);
    const F32Vector other = hn::Mul(hn::Reverse2(f32, x), hn::LoadU(f32, angles.sin + i));
    store_lanes<kTo>(hn::MulAdd(x, hn::LoadU(f32, angles.cos + i), other),
                     to + i * kElementBytes<kTo>, lanes);
  });
}

template <DType kFrom, DType kTo>
inline void rotate_columns(const RotationAngles& angles, std::int64_t rope_dim, bool interleaved,
                           const std::byte* from, std::byte* to) {
  if (interleaved) {
    rotate_pairs<kFrom, kTo>(angles, rope_dim, from, to);
  } else {
    rotate_halves<kFrom, kTo>(angles, rope_dim, from, to);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
