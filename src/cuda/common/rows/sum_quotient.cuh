// SPDX-License-Identifier: Apache-2.0
// x / scale for f32 x, to be rounded to 8 bits: to nearest, but for one in a few thousand that is one unit off. A
// sum in fp32 has more error than that; numbers that are exact take Quotient.
#pragma once

#include "cuda/common/rows/granule_quotient.cuh"
#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda {

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
