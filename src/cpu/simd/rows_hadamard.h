// SPDX-License-Identifier: Apache-2.0
// A row times Hadamard's matrix, in place: log2(count) levels of sums and differences.
#pragma once

#include "cpu/simd/rows_lanes.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// One level of a vector: lane i meets lane i ^ kDistance.
template <std::int32_t kDistance> inline F32Vector hadamard_level(F32Vector value) {
  const F32Tag f32;
  alignas(64) std::int32_t lanes[kF32Lanes];
  alignas(64) float signs[kF32Lanes];
  for (std::int32_t i = 0; i < kF32Lanes; ++i) {
    lanes[i] = i ^ kDistance;
    signs[i] = (i & kDistance) == 0 ? 1.0f : -1.0f;
  }
  const F32Vector other = hn::TableLookupLanes(value, hn::SetTableIndices(f32, lanes));
  return hn::MulAdd(value, hn::Load(f32, signs), other);
}

// The levels from kDistance on that stay inside a vector.
template <std::int32_t kDistance>
inline F32Vector hadamard_lanes(F32Vector value, std::int64_t count) {
  if constexpr (kDistance < kF32Lanes) {
    if (kDistance >= count) return value;
    return hadamard_lanes<2 * kDistance>(hadamard_level<kDistance>(value), count);
  } else {
    return value;
  }
}

// count: a power of two. Whole vectors are read and written.
inline void hadamard_row(float* row, std::int64_t count, float factor) {
  const F32Tag f32;
  for (std::int64_t i = 0; i < count; i += kF32Lanes) {
    const F32Vector value = hadamard_lanes<1>(hn::LoadU(f32, row + i), count);
    hn::StoreU(hn::Mul(value, hn::Set(f32, factor)), f32, row + i);
  }
  for (std::int64_t distance = kF32Lanes; distance < count; distance *= 2) {
    for (std::int64_t i = 0; i < count; i += kF32Lanes) {
      if ((i & distance) != 0) continue;
      const F32Vector a = hn::LoadU(f32, row + i);
      const F32Vector b = hn::LoadU(f32, row + i + distance);
      hn::StoreU(hn::Add(a, b), f32, row + i);
      hn::StoreU(hn::Sub(a, b), f32, row + i + distance);
    }
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
