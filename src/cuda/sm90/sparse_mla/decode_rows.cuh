// SPDX-License-Identifier: Apache-2.0
// e4m3 bytes of a row, scaled, as bf16: one rounding, of the product in fp32. (A scale
// rounded to bf16 first would halve the multiplications and double the error.)
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "cuda/common/rows/scale_vec8.cuh"
#include "cuda/common/softmax/softmax.cuh"

namespace quire::cuda::sm90::sparse_mla {

// Two e4m3 numbers, the low half of `codes`.
__device__ inline std::uint32_t decode_pair(std::uint32_t codes, float scale) {
  const auto pair = static_cast<__nv_fp8x2_storage_t>(codes & 0xffff);
  const float2 values = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3)));
  return pack_pair<DType::bf16>(values.x * scale, values.y * scale);
}

// Eight e4m3 numbers.
__device__ inline uint4 decode_vec8(std::uint32_t low, std::uint32_t high, float scale) {
  return {decode_pair(low, scale), decode_pair(low >> 16, scale), decode_pair(high, scale),
          decode_pair(high >> 16, scale)};
}

}  // namespace quire::cuda::sm90::sparse_mla
