// SPDX-License-Identifier: Apache-2.0
// Powers of two, in which all scores are weighed.
#pragma once

namespace quire::cuda::hopper {

inline constexpr float kLog2e = 1.4426950408889634F;
inline constexpr float kLn2 = 0.6931471805599453F;

// What is too small for a normal number is 0: one instruction instead of four.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));  // right but for the last bit
  return y;
}

}  // namespace quire::cuda::hopper
