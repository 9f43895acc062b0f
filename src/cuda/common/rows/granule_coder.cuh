// SPDX-License-Identifier: Apache-2.0
// The fp8 codes of numbers that share a scale. Nearly every granule of 16-bit numbers takes the short
// division; f32, scales that are not those of the granule's amax, and magnitudes near the ends of f32 take the long
// one.
#pragma once

#include "cuda/common/rows/granule_quotient.cuh"
#include "cuda/common/rows/quotient.cuh"
#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda {

// What a lane stores for eight numbers of a granule.
struct GranuleCodes {
  uint2 codes;
  float scale;  // the granule's
};

template <DType kX, DType kOut> class GranuleCoder {
 public:
  using X = Eight<kX>;
  static constexpr float kMaxFinite = kOut == DType::fp8_e4m3 ? 448.0f : 57344.0f;

  __device__ static bool is_short(float amax) {
    return bits(kX) == 16 && GranuleQuotient::takes(amax);
  }

  // scale = amax / max_finite, to nearest.
  __device__ static GranuleCodes encode(const typename X::Raw& raw, float amax) {
    if (is_short(amax)) {
      const float scale = short_scale(amax);
      return encode_short(raw, scale, fmaf(-scale, kMaxFinite, amax));
    }
    return bits(kX) == 16 ? encode_rare(raw, amax)
                          : encode_long(raw, amax, __fdiv_rn(amax, kMaxFinite));
  }
  // Any other scale.
  __device__ static GranuleCodes encode_long(const typename X::Raw& raw, float amax, float scale) {
    float values[kVec8];
    X::decode(raw, values);
    Quotient(scale, amax).divide(values);
    return {encode_fp8<kFormat>(values), scale};
  }

  // For amax that is_short() takes: its scale, and the codes with it (residue = amax - max_finite · scale) or with
  // a power of two not far from it (residue 0).
  __device__ static float short_scale(float amax) {
    return GranuleQuotient::scale_of(amax, kMaxFinite, kInverse);
  }
  __device__ static GranuleCodes encode_short(const typename X::Raw& raw, float scale,
                                              float residue) {
    float values[kVec8];
    X::decode(raw, values);
    GranuleQuotient(scale, residue, kInverse).divide(values);
    return {encode_fp8<kFormat>(values), scale};
  }

 private:
  static constexpr float kInverse = 1.0f / kMaxFinite;
  static constexpr auto kFormat = kOut == DType::fp8_e4m3 ? __NV_E4M3 : __NV_E5M2;

  // A function of its own, so that what every granule needs lies together.
  __device__ __noinline__ static GranuleCodes encode_rare(typename X::Raw raw, float amax) {
    return encode_long(raw, amax, __fdiv_rn(amax, kMaxFinite));
  }
};

}  // namespace quire::cuda
