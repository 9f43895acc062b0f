// SPDX-License-Identifier: Apache-2.0
// x / scale, rounded so that rounding it once more, to 8 or 16 bits, gives what rounding the exact
// quotient would: to odd. An inexact quotient takes, of its two f32 neighbours, the one with an odd
// significand; no middle between two codes is odd. The same rule as src/cpu, hence the same bytes.
#pragma once

#include <cstdint>

namespace quire::cuda {

class Quotient {
 public:
  // For numbers of at most `largest` in magnitude, NaN apart. A scale of 0 makes 0 of every number;
  // NaN stays.
  __device__ Quotient(float scale, float largest)
      : scale_(scale),
        reciprocal_(1.0f / scale),
        // The remainder is exact in one fused multiply-add from 2^-85 on, for all that 8-bit codes
        // can tell from 0; the upper bounds keep the reciprocal normal and the quotient finite.
        is_plain_(scale >= 0x1p-85f && scale <= 0x1p+100f && largest <= scale * 0x1p+20f) {}

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

}  // namespace quire::cuda
