// SPDX-License-Identifier: Apache-2.0
// Latents as the projection with e4m3 weights multiplies them: groups of 128 columns that share a
// scale, half a warp's.
#pragma once

#include "cuda/rows/eight.cuh"
#include "cuda/rows/quotient.cuh"

namespace quire::cuda::hopper {

inline constexpr int kLatentGroup = 128;
inline constexpr int kLatentGroupLanes = kLatentGroup / kEight;

// Numbers of q's dtype become x / scale, to be rounded to e4m3; the scale is the same in all of the
// group's lanes.
__device__ inline float divide_group(float (&values)[kEight]) {
  constexpr float kLargestAmax = 1200.0F;
  constexpr float kLargestE4m3 = 448.0F;
  float amax = 0.0F;
#pragma unroll
  for (const float value : values) amax = fmaxf(amax, fabsf(value));
#pragma unroll
  for (int step = kLatentGroupLanes / 2; step > 0; step /= 2) {
    amax = fmaxf(amax, __shfl_xor_sync(0xffffffff, amax, step));
  }
  const float scale = fminf(amax, kLargestAmax) / kLargestE4m3;
  const bool vanishes = scale == 0.0F || isinf(1.0F / scale);
  // Not a plain division: rounded to f32 first, a quotient can come to rest halfway between two
  // codes and then go to the wrong one (one latent in a thousand).
  if (!vanishes) Quotient(scale, amax).divide(values);
#pragma unroll
  for (float& value : values) value = vanishes ? value * 0.0F : value;
  return scale;
}

}  // namespace quire::cuda::hopper
