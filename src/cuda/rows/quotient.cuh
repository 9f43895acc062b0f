// SPDX-License-Identifier: Apache-2.0
// x / scale, rounded so that rounding it once more, to 8 or 16 bits, gives what rounding the exact
// quotient would: to odd. An inexact quotient takes, of its two f32 neighbours, the one with an odd
// significand; no middle between two codes is odd. The same rule as src/cpu, hence the same bytes.
#pragma once

#include <cstdint>

namespace quire::cuda {

// `rest` has the sign of (exact value - value) and is 0 where the value is exact, or NaN.
__device__ inline float to_odd(float value, float rest) {
  const int bits = __float_as_int(value);
  // One towards zero where the exact value lies there, then the odd one of the two.
  const int step_down = (bits ^ __float_as_int(rest)) >> 31;
  return fabsf(rest) > 0.0f ? __int_as_float((bits + step_down) | 1) : value;
}

class Quotient {
 public:
  // A scale of 0 makes 0 of every number; NaN stays.
  __device__ explicit Quotient(float scale)
      : scale_(scale),
        reciprocal_(1.0f / scale),
        // The remainder is exact in one fused multiply-add from 2^-85 on, for all that 8-bit codes
        // can tell from 0; the upper bound keeps the reciprocal normal.
        is_plain_(scale >= 0x1p-85f && scale <= 0x1p+100f) {}

  // For 8-bit results.
  __device__ float operator()(float x) const {
    if (!is_plain_) return wide(x);
    const float estimate = x * reciprocal_;
    const float value = fmaf(fmaf(-estimate, scale_, x), reciprocal_, estimate);
    return to_odd(value, fmaf(-value, scale_, x));
  }

  // For 16-bit results, whose smallest numbers the remainder above does not reach.
  __device__ float wide(float x) const {
    if (scale_ == 0.0f) return isnan(x) ? x : 0.0f;
    const double exact = static_cast<double>(x) / static_cast<double>(scale_);
    const auto value = static_cast<float>(exact);
    const double rest = exact - static_cast<double>(value);
    return to_odd(value, rest > 0.0 ? 1.0f : rest < 0.0 ? -1.0f : 0.0f);
  }

 private:
  float scale_;
  float reciprocal_;
  bool is_plain_;
};

}  // namespace quire::cuda
