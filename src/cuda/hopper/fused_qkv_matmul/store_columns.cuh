// SPDX-License-Identifier: Apache-2.0
// From a thread's sums to Q, K and V. With the weight rows in quad order (tile/row_order.h) a thread
// holds runs of neighbouring columns, so each run is one vector store, and the four threads of a quad fill whole
// sectors.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/params.h"
#include "cuda/tile/store_run.cuh"

namespace quire::cuda::hopper {

// Where a run of columns of one token goes; null where it goes nowhere.
__device__ inline std::byte* run_address(const QkvOutputs& outputs, int token, int column,
                                         std::int64_t kv_offset) {
  if (column < outputs.q_dim) {
    if (token >= outputs.tokens) return nullptr;
    return outputs.q + token * outputs.q_stride_bytes +
           column * static_cast<std::int64_t>(bits(outputs.q_dtype) / 8);
  }
  if (kv_offset < 0 || column >= outputs.columns) return nullptr;
  int within = column - outputs.q_dim;
  std::byte* side = outputs.keys.data + kv_offset;
  if (within >= outputs.kv_dim) {
    within -= outputs.kv_dim;
    side += outputs.value_offset_bytes;
  }
  const int head = within / outputs.head_dim;
  const int depth = within - head * outputs.head_dim;
  return side + head * outputs.keys.head_stride_bytes + depth * (bits(outputs.kv_dtype) / 8);
}

// Run `group` of token `half` (token + 8 · half), as wgmma leaves it (tile/wgmma.cuh), finished.
template <typename Scales, int kRegisters>
__device__ inline void take_run(const QkvOutputs& outputs, const Scales& scales,
                                const typename Scales::Columns& columns,
                                const float (&sums)[kRegisters], int group, int half, int column,
                                float (&run)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) run[i] = sums[16 * group + 4 * (i / 2) + 2 * half + i % 2];
  scales.finish(run, columns, half);
  if (outputs.bias != nullptr) {
    add_run(outputs.bias + column * (bits(outputs.bias_dtype) / 8), outputs.bias_dtype, run);
  }
}

// A tile inside one of Q, K and V whose heads follow each other: one address per token. This is the
// path of every usual shape; the other one computes an address per run, which costs 7 % of a tile of
// K = 4096.
template <DType kDType, typename Scales, int kRegisters>
__device__ inline void store_dense(const QkvOutputs& outputs, const Scales& scales,
                                   const float (&sums)[kRegisters], int first_column,
                                   std::byte* const (&rows)[2]) {
#pragma unroll
  for (int group = 0; group < kRegisters / 16; ++group) {
    const int column = first_column + 32 * group;
    if (column >= outputs.columns) break;
    const typename Scales::Columns columns = scales.of_columns(column);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float run[8];
      take_run(outputs, scales, columns, sums, group, half, column, run);
      if (rows[half] == nullptr) continue;
      store_run<kDType>(rows[half] + group * (32 * bits(kDType) / 8), run);
    }
  }
}

template <typename Scales, int kRegisters>
__device__ void store_anywhere(const QkvOutputs& outputs, const Scales& scales,
                               const float (&sums)[kRegisters], int token, int first_column,
                               const std::int64_t (&kv_offsets)[2]) {
#pragma unroll
  for (int group = 0; group < kRegisters / 16; ++group) {
    const int column = first_column + group * 32;
    if (column >= outputs.columns) break;
    const typename Scales::Columns columns = scales.of_columns(column);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::byte* to = run_address(outputs, token + 8 * half, column, kv_offsets[half]);
      if (to == nullptr) continue;
      float run[8];
      take_run(outputs, scales, columns, sums, group, half, column, run);
      store_run(to, column < outputs.q_dim ? outputs.q_dtype : outputs.kv_dtype, run);
    }
  }
}

// Tokens `token` and `token + 8`, the tile's columns from first_column on.
template <typename Scales, int kRegisters>
__device__ void store_columns(const QkvOutputs& outputs, const Scales& scales,
                              const float (&sums)[kRegisters], int token, int first_column,
                              const std::int64_t (&kv_offsets)[2]) {
  const int last_column = min(first_column + 2 * kRegisters, outputs.columns) - 1;
  const int column = first_column + 8 * static_cast<int>(threadIdx.x % 4);
  const DType dtype = first_column < outputs.q_dim ? outputs.q_dtype : outputs.kv_dtype;
  const bool is_dense = outputs.segment_of(first_column) == outputs.segment_of(last_column) &&
                        (last_column < outputs.q_dim || outputs.heads_are_dense);
  if (is_dense && (dtype == DType::bf16 || dtype == DType::f16)) {
    std::byte* const rows[2] = {run_address(outputs, token, column, kv_offsets[0]),
                                run_address(outputs, token + 8, column, kv_offsets[1])};
    if (dtype == DType::bf16) {
      store_dense<DType::bf16>(outputs, scales, sums, column, rows);
    } else {
      store_dense<DType::f16>(outputs, scales, sums, column, rows);
    }
  } else {
    store_anywhere(outputs, scales, sums, token, column, kv_offsets);
  }
}

}  // namespace quire::cuda::hopper
