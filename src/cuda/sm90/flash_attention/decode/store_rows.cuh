// SPDX-License-Identifier: Apache-2.0
// Sums over keys brought together, and finished rows to memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/common/softmax/row_end.cuh"
#include "cuda/sm90/flash_attention/decode/params.h"

namespace quire::cuda::sm90::flash_attention {

inline constexpr float kNoKey = -INFINITY;

__device__ inline void store_column(const DecodeOutputs& outputs, std::int64_t index, float value) {
  switch (outputs.dtype) {
    case DType::f32:
      reinterpret_cast<float*>(outputs.out)[index] = value;
      return;
    case DType::f16:
      reinterpret_cast<__half*>(outputs.out)[index] = __float2half_rn(value);
      return;
    default:
      reinterpret_cast<__nv_bfloat16*>(outputs.out)[index] = __float2bfloat16_rn(value);
  }
}

__device__ inline void store_vector(const DecodeOutputs& outputs, std::int64_t index,
                                    const float4& values) {
  if (outputs.dtype == DType::f32) {
    *reinterpret_cast<float4*>(outputs.out + index * 4) = values;
  } else if (outputs.dtype == DType::f16) {
    const __half2 pairs[2] = {__floats2half2_rn(values.x, values.y),
                              __floats2half2_rn(values.z, values.w)};
    *reinterpret_cast<uint2*>(outputs.out + index * 2) = reinterpret_cast<const uint2&>(pairs);
  } else {
    const __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(values.x, values.y),
                                     __floats2bfloat162_rn(values.z, values.w)};
    *reinterpret_cast<uint2*>(outputs.out + index * 2) = reinterpret_cast<const uint2&>(pairs);
  }
}

// Columns [column, column + 4) of a row, those past value_dim dropped.
__device__ inline void store_output(const DecodeOutputs& outputs, std::int64_t token, int head,
                                    int column, const float4& values) {
  const std::int64_t index = token * outputs.token_stride + head * outputs.head_stride + column;
  if (outputs.has_vectors && column + 4 <= outputs.value_dim) {
    store_vector(outputs, index, values);
    return;
  }
  // Rare: kept short, since code is waited for as well.
  float value = values.x;
#pragma unroll 1
  for (int i = 0; i < 4 && column + i < outputs.value_dim; ++i) {
    store_column(outputs, index + i, value);
    value = i == 0 ? values.y : (i == 1 ? values.z : values.w);
  }
}

__device__ inline void store_lse(const DecodeOutputs& outputs, std::int64_t token, int head,
                                 float lse) {
  if (outputs.lse == nullptr) return;
  outputs.lse[token * outputs.lse_token_stride + head * outputs.lse_head_stride] = lse;
}

__device__ inline float4 scaled(const float4& values, float factor) {
  return {values.x * factor, values.y * factor, values.z * factor, values.w * factor};
}
__device__ inline void add_scaled(float4& sums, const float4& values, float factor) {
  sums.x += values.x * factor;
  sums.y += values.y * factor;
  sums.z += values.z * factor;
  sums.w += values.w * factor;
}

}  // namespace quire::cuda::sm90::flash_attention
