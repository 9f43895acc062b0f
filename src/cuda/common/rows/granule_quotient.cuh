// SPDX-License-Identifier: Apache-2.0
// x / scale for 16-bit x whose scale comes from their own largest magnitude, in two instructions a number and
// with the same bytes as Quotient: rounding the result to fp8 gives what rounding the exact quotient would.
//
// Why two suffice. Let amax = b · 2^j and x = a · 2^i with a, b of at most 11 bits, max_finite = 7 · 2^n (448 and
// 57344), and m a middle between two codes, of at most 5 bits. 7a · 2^k - m · b is an integer. Where it is not 0,
// x · max_finite / amax is at least 2^-16 away from m. Where it is 0, x / scale is m but for the rounding of scale
// to f32: nothing, or between 2^-27 and 2^-24 of m, too little for an f32 to show. That difference is made 16
// times larger, which shows it and stays far below 2^-16. The reciprocal has a second term, so that a quotient
// of exactly m is m.
#pragma once

namespace quire::cuda {

class GranuleQuotient {
 public:
  // Magnitudes for which nothing here underflows or overflows.
  static constexpr float kSmallest = 0x1p-70f;
  static constexpr float kLargest = 0x1p+60f;

  __device__ static bool takes(float amax) { return amax >= kSmallest && amax <= kLargest; }

  // amax / max_finite to nearest, as IEEE division has it: true for every f32 that takes() lets through
  // (checked for every significand), since max_finite and its reciprocal are constants.
  __device__ static float scale_of(float amax, float max_finite, float inverse_max) {
    const float estimate = amax * inverse_max;
    return fmaf(fmaf(-estimate, max_finite, amax), inverse_max, estimate);
  }

  // `residue` = amax - max_finite · scale for a scale that scale_of() gave, 0 for a power of two.
  __device__ GranuleQuotient(float scale, float residue, float inverse_max) {
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(high_) : "f"(scale));
    const float shown = residue * high_ * (kShown * inverse_max);
    low_ = high_ * (fmaf(-high_, scale, 1.0f) + shown);
  }

  template <int kCount> __device__ void divide(float (&values)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = fmaf(values[i], high_, values[i] * low_);
  }

 private:
  static constexpr float kShown = 16.0f;  // how much larger the rounding of scale is made

  float high_;
  float low_;
};

}  // namespace quire::cuda
