// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/any/fused_qkv_matmul/load_number.cuh"

namespace quire::cuda::any::fused_qkv_matmul {

inline constexpr int kInputBlock = 128;  // columns that share a scale

__device__ inline float input_scale(const InputOperand& x, int token, int column) {
  return __ldg(x.scale + token * x.scale_row_stride + column / kInputBlock * x.scale_block_stride);
}

// x(token, …) for the stored weight columns [column, column + kRun), scaled; zeros outside.
__device__ inline void load_input(const InputOperand& x, int token, int column, float (&v)[kRun]) {
  if (token >= x.rows || column >= x.columns) return set_zero(v);
  const std::byte* row = x.data + token * x.stride_bytes;
  if (x.perm == nullptr) {
    load_dense(row, x.dtype, column, x.columns, x.has_vectors, v);
    if (x.scale != nullptr) multiply(v, input_scale(x, token, column));
    return;
  }
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    v[i] = 0.0f;
    if (column + i >= x.columns) continue;
    const int source = __ldg(x.perm + column + i);
    v[i] = load_float(row, x.dtype, source);
    if (x.scale != nullptr) v[i] *= input_scale(x, token, source);
  }
}

}  // namespace quire::cuda::any::fused_qkv_matmul
