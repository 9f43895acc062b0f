// SPDX-License-Identifier: Apache-2.0
// x / scale, rounded once to 8 or 16 bits: the bytes that src/cpu and the reference give.
#pragma once

#include <cstdint>

#include "cuda/rows/eight.cuh"

namespace quire::cuda {

class Quotient {
 public:
  // For numbers of at most `largest` in magnitude, NaN apart. A scale of 0 makes 0 of every number;
  // NaN stays.
  __device__ Quotient(float scale, float largest)
      : scale_(scale),
        // Within these bounds the reciprocal is normal and the quotient finite.
        is_plain_(scale >= 0x1p-85f && scale <= 0x1p+100f && largest <= scale * 0x1p+20f) {
    const float reciprocal = __fdividef(1.0f, scale);
    lower_ = reciprocal * (1.0f - 0x1p-20f);
    upper_ = reciprocal * (1.0f + 0x1p-20f);
  }

  // Of an 8-bit type. The quotient lies between x · lower and x · upper (the reciprocal and both
  // products together are off by less than 2^-21), and rounding is monotone: where both ends have
  // the same code, the quotient has it too. Of random numbers one in 2^15 needs the division.
  __device__ uint2 codes(DType dtype, float (&values)[kEight]) const {
    if (is_plain_) {
      float ends[2][kEight];
#pragma unroll
      for (int i = 0; i < kEight; ++i) {
        ends[0][i] = values[i] * lower_;
        ends[1][i] = values[i] * upper_;
      }
      const uint2 lower = encode_eight(dtype, ends[0]);
      const uint2 upper = encode_eight(dtype, ends[1]);
      if (lower.x == upper.x && lower.y == upper.y) return lower;
    }
    divide(values);
    return encode_eight(dtype, values);
  }

  // Rounded to odd: an inexact quotient takes, of its two f32 neighbours, the one with an odd
  // significand. No middle between two codes of at most 22 bits is odd, hence rounding the result
  // is rounding the exact quotient.
  __device__ void divide(float (&values)[kEight]) const {
#pragma unroll
    for (int i = 0; i < kEight; ++i) values[i] = quotient(values[i]);
  }

 private:
  __device__ float quotient(float x) const {
    if (scale_ == 0.0f) return isnan(x) ? x : 0.0f;
    const double exact = static_cast<double>(x) / static_cast<double>(scale_);
    const auto nearest = static_cast<float>(exact);
    const double rest = exact - static_cast<double>(nearest);
    const float lower = __double2float_rz(exact);
    return rest != 0.0 && !isnan(rest) ? __int_as_float(__float_as_int(lower) | 1) : nearest;
  }

  float scale_;
  bool is_plain_;
  float lower_;
  float upper_;
};

}  // namespace quire::cuda
