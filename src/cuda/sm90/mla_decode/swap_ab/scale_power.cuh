// SPDX-License-Identifier: Apache-2.0
// Weights of e4m3 values are f16, times the scales of the keys, and scales may be of any size: relative
// to a power of two that follows the largest scale of the sequence so far. (bf16 would hold any product,
// but e4m3 becomes bf16 at three times the instructions.)
//
// Kept as the power's exponent field in fp32. A weight is at most 2^kSlack, a scale below 8 times the
// power, so that kLift more powers are left below 2^15: what is 2^22 below the largest still has f16's
// digits.
#pragma once

#include <cstdint>

namespace quire::cuda::sm90::mla_decode {

struct ScalePower {
  static constexpr float kSlack = 4.0F;  // of the exponents, for weights of f16
  static constexpr int kLift = 8;
  static constexpr int kMargin = 2;  // powers that a scale may rise before the power follows
  static constexpr int kLeast = 20;
  static constexpr int kBias = 127;

  // `top`: bits of the largest scale of a tile; `before`: 0 where there is none.
  __device__ static int follow(int before, std::uint32_t top) {
    const int field = max(static_cast<int>(top >> 23), kLeast);
    return field > before + kMargin || before == 0 ? field : before;
  }
  // Whether it would be `before` again, without the steps to the power that it would be.
  __device__ static bool stays(int before, std::uint32_t top) {
    return (before != 0) & (top < static_cast<std::uint32_t>(before + kMargin + 1) << 23);
  }
  // What weights are multiplied by, with the scales; and sums, when they are stored.
  __device__ static float lift(int field) { return power(kLift + kBias - field); }
  __device__ static float unlift(int field) { return power(field - kBias - kLift); }
  // What sums relative to `before` are worth relative to `now`, both known.
  __device__ static float keep(int before, int now) { return power(max(before - now, -126)); }

 private:
  __device__ static float power(int exponent) {
    return __uint_as_float(static_cast<std::uint32_t>(exponent + kBias) << 23);
  }
};

}  // namespace quire::cuda::sm90::mla_decode
