// SPDX-License-Identifier: Apache-2.0
// Latents as the projection with e4m3 weights multiplies them: groups of columns that share a scale,
// half a warp's.
#pragma once

#include "cuda/common/mla/fp8_group.cuh"
#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda::sm90::mla_prefill {

inline constexpr int kLatentGroupLanes = kFp8Group / kVec8;

// Numbers of q's dtype become x / scale, to be rounded to e4m3; the scale is the same in all of the
// group's lanes.
__device__ inline float divide_group(float (&values)[kVec8]) {
  const GroupScale group = group_scale<kLatentGroupLanes>(DType::fp8_e4m3, values);
  // Not a plain division: rounded to f32 first, a quotient can come to rest halfway between two
  // codes and then go to the wrong one (one latent in a thousand).
  if (!group.vanishes) {
    Quotient(group.scale, group.amax).divide(values);
  } else {
#pragma unroll
    for (float& value : values) value *= 0.0F;
  }
  return group.scale;
}

}  // namespace quire::cuda::sm90::mla_prefill
