// SPDX-License-Identifier: Apache-2.0
// Activations quantized to fp8 in groups of 128 columns, each with a scale of its own.
#pragma once

#include "cpu/simd/encode_row.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

inline constexpr std::int64_t kScaleBlock = 128;

// scale = min(amax, 1200) / max_finite, or 0 where that has no reciprocal; values ← the numbers of
// the codes of value / scale. codes: scratch [count]. Returns the scale.
inline float quantize_group(float* values, std::int64_t count, DType fp8, std::byte* codes) {
  constexpr float kLargestAmax = 1200.0f;
  const float amax = largest_magnitude(values, count);
  float scale = (amax < kLargestAmax ? amax : kLargestAmax) / max_finite_of(fp8);
  if (scale != 0.0f && 1.0f / scale == __builtin_inff()) scale = 0.0f;
  divide_by(values, count, scale, fp8);
  narrow_row(fp8, values, count, codes);
  widen_row(fp8, codes, count, values);
  return scale;
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
