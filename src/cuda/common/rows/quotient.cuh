// SPDX-License-Identifier: Apache-2.0
// x / scale on its way to 8 or 16 bits.
#pragma once

#include <cstdint>

#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda {

// x / scale, rounded so that rounding it once more, to 8 or 16 bits, gives what rounding the exact
// quotient would: to odd. An inexact quotient takes, of its two f32 neighbours, the one with an odd
// significand; no middle between two codes is odd. The same rule as src/cpu, hence the same bytes.

class Quotient {
 public:
  // For numbers of at most `largest` in magnitude, NaN apart. A scale of 0 makes 0 of every number;
  // NaN stays.
  __device__ Quotient(float scale, float largest)
      : scale_(scale), reciprocal_(1.0f / scale), is_plain_(is_plain(scale, largest)) {}

  // The same scale for numbers of at most `largest`, without another division.
  __device__ Quotient up_to(float largest) const {
    Quotient other = *this;
    other.is_plain_ = is_plain(scale_, largest);
    return other;
  }

  // For 8-bit results. One decision for all of them, so that their chains overlap.
  template <int kCount> __device__ void divide(float (&values)[kCount]) const {
    if (!is_plain_) return divide_wide(values);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = plain(values[i]);
  }

  // For 16-bit results, whose smallest numbers the remainder of plain() does not reach.
  template <int kCount> __device__ void divide_wide(float (&values)[kCount]) const {
    Numbers<kCount> numbers;
#pragma unroll
    for (int i = 0; i < kCount; ++i) numbers.at[i] = values[i];
    numbers = wide(numbers, scale_);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = numbers.at[i];
  }

 private:
  // The remainder is exact in one fused multiply-add from 2^-85 on, for all that 8-bit codes can tell from 0; the upper
  // bounds keep the reciprocal normal and the quotient finite.
  __device__ static bool is_plain(float scale, float largest) {
    return scale >= 0x1p-85f && scale <= 0x1p+100f && largest <= scale * 0x1p+20f;
  }
  __device__ float plain(float x) const {
    const float estimate = x * reciprocal_;
    const float nearest = fmaf(fmaf(-estimate, scale_, x), reciprocal_, estimate);
    const float rest = fmaf(-nearest, scale_, x);
    // Towards zero: one below the nearest where the exact quotient lies there.
    const float lower = __fmaf_rz(rest, reciprocal_, nearest);
    return rest != 0.0f ? __int_as_float(__float_as_int(lower) | 1) : nearest;
  }

  template <int kCount> struct Numbers { float at[kCount]; };
  // A function of its own: inlined, divisions in double are most of a kernel's code, and the
  // instructions that every row needs lie far apart.
  template <int kCount>
  __device__ __noinline__ static Numbers<kCount> wide(Numbers<kCount> numbers, float scale) {
#pragma unroll 1
    for (int i = 0; i < kCount; ++i) numbers.at[i] = wide(numbers.at[i], scale);
    return numbers;
  }

  __device__ static float wide(float x, float scale) {
    if (scale == 0.0f) return isnan(x) ? x : 0.0f;
    const double exact = static_cast<double>(x) / static_cast<double>(scale);
    const auto nearest = static_cast<float>(exact);
    const double rest = exact - static_cast<double>(nearest);
    const float lower = __double2float_rz(exact);
    return rest != 0.0 && !isnan(rest) ? __int_as_float(__float_as_int(lower) | 1) : nearest;
  }

  float scale_;
  float reciprocal_;
  bool is_plain_;
};

// x / scale for 16-bit x whose scale comes from their own largest magnitude, in two instructions a number and
// with the same bytes as Quotient: rounding the result to fp8 gives what rounding the exact quotient would.
//
// Why two suffice. Let amax = b · 2^j and x = a · 2^i with a, b of at most 11 bits, max_finite = 7 · 2^n (448 and
// 57344), and m a middle between two codes, of at most 5 bits. 7a · 2^k - m · b is an integer. Where it is not 0,
// x · max_finite / amax is at least 2^-16 away from m. Where it is 0, x / scale is m but for the rounding of scale
// to f32: nothing, or between 2^-27 and 2^-24 of m, too little for an f32 to show. That difference is made 16
// times larger, which shows it and stays far below 2^-16. The reciprocal has a second term, so that a quotient
// of exactly m is m.

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

// x / scale for f32 x, to be rounded to 8 bits: to nearest, but for one in a few thousand that is one unit off. A
// sum in fp32 has more error than that; numbers that are exact take Quotient.

class SumQuotient {
 public:
  // Whether numbers of at most `largest` in magnitude, NaN apart, need divide_any().
  __device__ static bool is_rare(float scale, float largest) {
    return !(scale >= kSmallest && scale <= kLargest && largest <= scale * kReach);
  }

  __device__ static void divide(float (&values)[kVec8], float scale) {
    GranuleQuotient(scale, 0.0f, 0.0f).divide(values);
  }

  // A scale of 0 makes 0 of every number, an infinite one of every finite number; infinite ones are NaN then. What
  // no code reaches saturates; NaN stays.
  __device__ static void divide_any(float (&values)[kVec8], float scale) {
    const bool is_infinite = isinf(scale);
    const float factor = is_infinite            ? 0.0f
                         : scale < kSmallFactor ? kLargeFactor
                         : scale > kLargeFactor ? kSmallFactor
                                                : 1.0f;
    const float divisor = is_infinite ? 1.0f : scale * factor;
    const float reach = divisor * kReach;
#pragma unroll
    for (int i = 0; i < kVec8; ++i) {
      const float x = values[i] * factor;
      values[i] = x > reach ? reach : x < -reach ? -reach : x;
    }
    divide(values, divisor == 0.0f ? 1.0f : divisor);
  }

 private:
  // The reciprocal and its remainder are normal, or lose nothing that counts.
  static constexpr float kSmallest = 0x1p-126f;
  static constexpr float kLargest = 0x1p+120f;
  static constexpr float kReach = 0x1p+20f;  // beyond every code
  static constexpr float kLargeFactor = 0x1p+64f;
  static constexpr float kSmallFactor = 0x1p-64f;
};

}  // namespace quire::cuda
