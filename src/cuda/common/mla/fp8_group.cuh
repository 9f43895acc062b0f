// SPDX-License-Identifier: Apache-2.0
// Activations as products with fp8 weights read them: groups of 128 columns, rounded to
// x / scale and scaled back. A warp holds a group, four columns a lane.
#pragma once

#include "cuda/common/rows/number.cuh"
#include "cuda/common/rows/quotient.cuh"

namespace quire::cuda {

inline constexpr int kFp8Group = 128;

__device__ inline double round_fp8(DType fp8, double value) {
  return fp8 == DType::fp8_e4m3 ? decode_float<kFp8E4M3>(encode_float<kFp8E4M3>(value))
                                : decode_float<kFp8E5M2>(encode_float<kFp8E5M2>(value));
}

// The scale of a group, from its columns in each of `kLanes` neighbouring lanes; `vanishes`: all of
// it rounds to zero.
struct GroupScale {
  float scale;
  float amax;
  bool vanishes;
};

template <int kLanes, int kCount>
__device__ inline GroupScale group_scale(DType fp8, const float (&values)[kCount]) {
  constexpr float kLargestAmax = 1200.0f;
  constexpr float kVanishing = 0x1p-128f;  // 1 / scale is no number of f32
  float amax = 0.0f;
#pragma unroll
  for (const float value : values) amax = fmaxf(amax, fabsf(value));
  for (int step = kLanes / 2; step > 0; step /= 2) {
    amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, step));
  }
  const float scale = fminf(amax, kLargestAmax) / max_finite_of(fp8);
  return {.scale = scale, .amax = amax, .vanishes = scale <= kVanishing};
}

// The values become numbers of `fp8`, to be scaled by what is returned.
__device__ inline float quantized_scale(DType fp8, float (&values)[4]) {
  const GroupScale group = group_scale<32>(fp8, values);
  if (group.vanishes) {
#pragma unroll
    for (float& value : values) value = isnan(value) ? value : 0.0f;
    return 1.0f;
  }
  Quotient(group.scale, group.amax).divide(values);
#pragma unroll
  for (float& value : values) value = static_cast<float>(round_fp8(fp8, value));
  return group.scale;
}

__device__ inline void quantize_group(DType fp8, float (&values)[4]) {
  const float scale = quantized_scale(fp8, values);
#pragma unroll
  for (float& value : values) {
    value = static_cast<float>(static_cast<double>(value) * static_cast<double>(scale));
  }
}

}  // namespace quire::cuda
