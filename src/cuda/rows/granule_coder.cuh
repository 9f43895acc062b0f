// SPDX-License-Identifier: Apache-2.0
// The fp8 codes of numbers that share a scale. Nearly every granule of 16-bit numbers takes the short
// division; f32, scales that are not those of the granule's amax, and magnitudes near the ends of f32 take the long
// one.
#pragma once

#include "cuda/rows/eight.cuh"
#include "cuda/rows/granule_quotient.cuh"
#include "cuda/rows/quotient.cuh"

namespace quire::cuda {

template <DType kX, DType kOut> class GranuleCoder {
 public:
  using X = Eight<kX>;
  static constexpr float kMaxFinite = kOut == DType::fp8_e4m3 ? 448.0f : 57344.0f;

  __device__ static bool is_short(float amax) {
    return bits(kX) == 16 && GranuleQuotient::takes(amax);
  }
  // amax / max_finite to nearest.
  __device__ static float scale_of(float amax) {
    return is_short(amax) ? GranuleQuotient::scale_of(amax, kMaxFinite, kInverse)
                          : rare_quotient(amax);
  }

  // Its scale is scale_of(amax).
  __device__ explicit GranuleCoder(float amax)
      : amax_(amax), scale_(scale_of(amax)), is_short_(is_short(amax)) {
    const float residue = fmaf(-scale_, kMaxFinite, amax);
    if (is_short_) quotient_ = GranuleQuotient(scale_, residue, kInverse);
  }
  // Any other scale.
  __device__ GranuleCoder(float amax, float scale) : amax_(amax), scale_(scale), is_short_(false) {}
  // A scale that is a power of two, not far from that of amax: quotients are exact.
  __device__ static GranuleCoder of_power(float amax, float power) {
    GranuleCoder coder(amax, power);
    coder.is_short_ = is_short(amax);
    if (coder.is_short_) coder.quotient_ = GranuleQuotient(power, 0.0f, kInverse);
    return coder;
  }

  __device__ float scale() const { return scale_; }

  __device__ uint2 codes(const typename X::Raw& raw) const {
    if (is_short_) {
      float values[kEight];
      X::decode(raw, values);
      quotient_.divide(values);
      return encode_fp8<kFormat>(values);
    }
    return bits(kX) == 16 ? rare_codes(raw, scale_, amax_) : long_codes(raw, scale_, amax_);
  }

 private:
  static constexpr float kInverse = 1.0f / kMaxFinite;
  static constexpr auto kFormat = kOut == DType::fp8_e4m3 ? __NV_E4M3 : __NV_E5M2;

  __device__ static uint2 long_codes(const typename X::Raw& raw, float scale, float amax) {
    float values[kEight];
    X::decode(raw, values);
    Quotient(scale, amax).divide(values);
    return encode_fp8<kFormat>(values);
  }

  // Functions of their own, so that what every granule needs lies together.
  __device__ __noinline__ static uint2 rare_codes(typename X::Raw raw, float scale, float amax) {
    return long_codes(raw, scale, amax);
  }
  __device__ __noinline__ static float rare_quotient(float amax) {
    return __fdiv_rn(amax, kMaxFinite);
  }

  float amax_;
  float scale_;
  bool is_short_;
  GranuleQuotient quotient_;
};

}  // namespace quire::cuda
