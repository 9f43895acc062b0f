// SPDX-License-Identifier: Apache-2.0
// Numbers of a row, scaled.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace quire::cuda::hopper {

__device__ inline std::uint32_t bf16_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
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
