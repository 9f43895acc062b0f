// SPDX-License-Identifier: Apache-2.0
// The scale of a group from its largest magnitude, exactly as the op's header has it.
#pragma once

#include "cuda/any/quantize_fp8/params.h"
#include "cuda/common/rows/granule_coder.cuh"
#include "cuda/common/rows/number.cuh"

namespace quire::cuda::any::quantize_fp8 {

// The smallest power of two s with s · max_finite >= amax: the comparison is exact, where rounding
// the quotient first might hide that it lies just above a power of two. `quotient` is
// amax / max_finite, to nearest.
__device__ inline float power_of_two_scale(float quotient, float amax, float max_finite) {
  constexpr float kSmallest = 0x1p-33f;                                    // 2^ceil(log2(1e-10))
  if (!(amax <= 0x1.fffffep+127f)) return amax;                            // infinity
  float scale = __uint_as_float(__float_as_uint(quotient) & 0x7f800000u);  // rounded down
  if (scale < kSmallest) scale = kSmallest;
  if (scale * max_finite < amax) scale *= 2.0f;
  return scale;
}

// Of a group whose amax lies above the bound.
__device__ inline float bounded_scale(const QuantizeParams& params) {
  if (params.rounding == ScaleRounding::exact) return params.capped_scale;
  // capped_scale is a rounded quotient, but of a bound that the user chose, once per call.
  float scale = __uint_as_float(__float_as_uint(params.capped_scale) & 0x7f800000u);
  if (scale < 0x1p-33f) scale = 0x1p-33f;
  return scale < params.capped_scale ? 2.0f * scale : scale;
}

__device__ inline float group_scale(const QuantizeParams& params, float amax) {
  if (amax > params.largest_amax) return bounded_scale(params);
  const float max_finite = max_finite_of(params.out_dtype);
  const float quotient = __fdiv_rn(amax, max_finite);
  if (params.rounding == ScaleRounding::exact) return quotient;
  return power_of_two_scale(quotient, amax, max_finite);
}

// A function of its own, so that what every group needs lies together.
template <DType kX, DType kOut>
__device__ __noinline__ GranuleCodes encode_rare_group(const QuantizeParams& params,
                                                       typename Eight<kX>::Raw raw, float amax) {
  return GranuleCoder<kX, kOut>::encode_long(raw, amax, group_scale(params, amax));
}

// Eight numbers of a group with the same scale.
template <DType kX, DType kOut>
__device__ inline GranuleCodes encode_group(const QuantizeParams& params,
                                            const typename Eight<kX>::Raw& raw, float amax) {
  using Coder = GranuleCoder<kX, kOut>;
  if constexpr (bits(kX) == 32) return Coder::encode_long(raw, amax, group_scale(params, amax));
  if (!Coder::is_short(amax) || amax > params.largest_amax) {
    return encode_rare_group<kX, kOut>(params, raw, amax);
  }
  const float scale = Coder::short_scale(amax);
  if (params.rounding == ScaleRounding::exact) {
    return Coder::encode_short(raw, scale, fmaf(-scale, Coder::kMaxFinite, amax));
  }
  return Coder::encode_short(raw, power_of_two_scale(scale, amax, Coder::kMaxFinite), 0.0f);
}

}  // namespace quire::cuda::any::quantize_fp8
