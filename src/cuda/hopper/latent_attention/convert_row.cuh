// SPDX-License-Identifier: Apache-2.0
// Numbers of a row on their way from the cache's format to the products'.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace quire::cuda::hopper {

__device__ inline std::uint32_t bf16_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// Two of e4m3, exactly.
__device__ inline float2 float_pair(std::uint16_t fp8) {
  std::uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(fp8));
  return __half22float2(*reinterpret_cast<const __half2*>(&halves));
}

// Eight of e4m3, times `scale`, rounded once.
__device__ inline uint4 convert_eight(std::uint32_t low, std::uint32_t high, float scale) {
  const auto word = [scale](std::uint32_t four, int half) {
    const float2 pair = float_pair(static_cast<std::uint16_t>(four >> (16 * half)));
    return bf16_pair(pair.x * scale, pair.y * scale);
  };
  return {word(low, 0), word(low, 1), word(high, 0), word(high, 1)};
}

// Eight of bf16, times `scale`.
__device__ inline uint4 scale_eight(const uint4& eight, float scale) {
  const auto word = [scale](std::uint32_t two) {
    return bf16_pair(__uint_as_float(two << 16) * scale,
                     __uint_as_float(two & 0xffff0000U) * scale);
  };
  return {word(eight.x), word(eight.y), word(eight.z), word(eight.w)};
}

}  // namespace quire::cuda::hopper
