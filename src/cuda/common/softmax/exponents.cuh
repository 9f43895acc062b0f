// SPDX-License-Identifier: Apache-2.0
// Powers of two, in which all scores are weighed.
#pragma once

namespace quire::cuda {

inline constexpr float kLog2e = 1.4426950408889634F;
inline constexpr float kLn2 = 0.6931471805599453F;

// What is too small for a normal number is 0: one instruction instead of four.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// exp2(s · to_log2 - max · to_log2) is one FFMA and one MUFU if the last product is rounded before. Its error, an exponent's
// too, cancels when rows are divided by their sums, until it makes a weight of 1 infinite or 0: beyond 2^20 powers of two
// the kernels take the maximum off the scores first, a tile at a time, on the path that raises a row's reference. False for
// infinities and NaN as well.
__device__ inline bool is_near(float reference) {
  return fabsf(reference) < 0x1p20F;
}

__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));  // right but for the last bit
  return y;
}

}  // namespace quire::cuda
