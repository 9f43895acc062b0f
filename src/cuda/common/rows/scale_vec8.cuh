// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace quire::cuda {

// Eight numbers of bf16, times `scale`: one rounding.
__device__ inline uint4 scale_vec8(const uint4& eight, float scale) {
  const auto word = [scale](std::uint32_t two) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(__uint_as_float(two << 16) * scale,
                                                      __uint_as_float(two & 0xffff0000U) * scale);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  };
  return {word(eight.x), word(eight.y), word(eight.z), word(eight.w)};
}

}  // namespace quire::cuda
