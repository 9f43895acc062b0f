// SPDX-License-Identifier: Apache-2.0
// From a thread's sums to Q, K and V. With the weight rows in quad order (tile/row_order.h) a
// thread holds runs of neighbouring columns, so each run is one vector store, and the four threads
// of a quad fill whole sectors.
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
template <typename Finish, int kRegisters>
__device__ inline void take_run(const Finish& finish, const typename Finish::Columns& columns,
                                const float (&sums)[kRegisters], int group, int half,
                                float (&run)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) run[i] = sums[16 * group + 4 * (i / 2) + 2 * half + i % 2];
  finish.finish(run, columns, half);
}

// The tile's columns that lie in Q, K or V, where its heads follow each other: one address per
// token.
struct DenseRows {
  std::byte* at[2];  // as if the tile began here; null where nothing is stored
};

__device__ inline DenseRows dense_rows(const QkvOutputs& outputs, int token, int column,
                                       const std::int64_t (&kv_offsets)[2], std::int64_t before) {
  DenseRows rows{{run_address(outputs, token, column, kv_offsets[0]),
                  run_address(outputs, token + 8, column, kv_offsets[1])}};
  if (rows.at[0] != nullptr) rows.at[0] -= before;
  if (rows.at[1] != nullptr) rows.at[1] -= before;
  return rows;
}

// This is the path of every usual shape; the other one computes an address per run, which costs 7 %
// of a tile of K = 4096. Groups from `second_group` on lie in the next of Q, K and V.
template <DType kDType, typename Finish, int kRegisters>
__device__ inline void store_dense(const QkvOutputs& outputs, const Finish& finish,
                                   const float (&sums)[kRegisters], int first_column,
                                   const DenseRows& first, const DenseRows& second,
                                   int second_group) {
  const int quad = 8 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int group = 0; group < kRegisters / 16; ++group) {
    const int column = first_column + 32 * group + quad;
    if (column >= outputs.columns) break;
    const typename Finish::Columns columns = finish.of_columns(32 * group + quad);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float run[8];
      take_run(finish, columns, sums, group, half, run);
      std::byte* row = group < second_group ? first.at[half] : second.at[half];
      if (row == nullptr) continue;
      store_run<kDType>(row + group * (32 * bits(kDType) / 8), run);
    }
  }
}

template <typename Finish, int kRegisters>
__device__ void store_anywhere(const QkvOutputs& outputs, const Finish& finish,
                               const float (&sums)[kRegisters], int token, int first_column,
                               const std::int64_t (&kv_offsets)[2]) {
  const int quad = 8 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int group = 0; group < kRegisters / 16; ++group) {
    const int column = first_column + 32 * group + quad;
    if (column >= outputs.columns) break;
    const typename Finish::Columns columns = finish.of_columns(32 * group + quad);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::byte* to = run_address(outputs, token + 8 * half, column, kv_offsets[half]);
      if (to == nullptr) continue;
      float run[8];
      take_run(finish, columns, sums, group, half, run);
      store_run(to, column < outputs.q_dim ? outputs.q_dtype : outputs.kv_dtype, run);
    }
  }
}

// Tokens `token` and `token + 8`, the tile's columns from first_column on.
template <typename Finish, int kRegisters>
__device__ void store_columns(const QkvOutputs& outputs, const Finish& finish,
                              const float (&sums)[kRegisters], int token, int first_column,
                              const std::int64_t (&kv_offsets)[2]) {
  const int last_column = min(first_column + 2 * kRegisters, outputs.columns) - 1;
  const DType dtype = first_column < outputs.q_dim ? outputs.q_dtype : outputs.kv_dtype;
  const int border = outputs.end_of_segment(first_column);
  const bool has_border = border <= last_column;
  const bool is_dense =
      (last_column < outputs.q_dim || outputs.heads_are_dense) &&
      (!has_border || (border % 32 == 0 && last_column < outputs.end_of_segment(border) &&
                       outputs.q_dtype == outputs.kv_dtype));
  if (!is_dense || (dtype != DType::bf16 && dtype != DType::f16)) {
    store_anywhere(outputs, finish, sums, token, first_column, kv_offsets);
    return;
  }
  const int quad = 8 * static_cast<int>(threadIdx.x % 4);
  const DenseRows first = dense_rows(outputs, token, first_column + quad, kv_offsets, 0);
  const DenseRows second = has_border ? dense_rows(outputs, token, border + quad, kv_offsets,
                                                   2 * (border - first_column))
                                      : first;
  const int second_group = has_border ? (border - first_column) / 32 : kRegisters;
  if (dtype == DType::bf16) {
    store_dense<DType::bf16>(outputs, finish, sums, first_column, first, second, second_group);
  } else {
    store_dense<DType::f16>(outputs, finish, sums, first_column, first, second, second_group);
  }
}

}  // namespace quire::cuda::hopper
