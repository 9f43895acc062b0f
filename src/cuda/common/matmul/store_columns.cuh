// SPDX-License-Identifier: Apache-2.0
// From a thread's sums to Q, K and V. With the weight rows in quad order (common/mma/row_order.h) a
// thread holds runs of neighbouring columns, so each run is one vector store, and the four threads
// of a quad fill whole sectors.
#pragma once

#include "cuda/common/matmul/dense_rows.cuh"
#include "cuda/common/matmul/params.h"
#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda {

// Where a run of columns of one token goes; null where it goes nowhere.
__device__ inline std::byte* run_address(const QkvOutputs& outputs, int token, int column,
                                         std::int64_t kv_offset) {
  if (column < outputs.q_dim) {
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

// Run `group` of token `half` (token + 8 · half), as wgmma leaves it (common/mma/wgmma.cuh), finished.
template <typename Finish, int kRegisters>
__device__ inline void take_run(const Finish& finish, const typename Finish::Columns& columns,
                                const float (&sums)[kRegisters], int group, int half,
                                float (&run)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) run[i] = sums[16 * group + 4 * (i / 2) + 2 * half + i % 2];
  finish.finish(run, columns, half);
}

// Rows `row` and `row + 8` of the tile, if it stores them, whatever the layout of its columns. (What the tile is
// stays in shared memory: there are no registers for it beside a large tile's sums.)
template <typename Finish, int kRegisters>
__device__ void store_columns(const QkvOutputs& outputs, const Finish& finish,
                              const float (&sums)[kRegisters], const TileRoute& tile, int row,
                              const std::int64_t* kv_offsets) {  // [tokens], shared
  const int quad = 8 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int group = 0; group < kRegisters / 16; ++group) {
    const int column = tile.column + 32 * group + quad;
    if (column >= outputs.columns) break;
    const typename Finish::Columns columns = finish.of_columns(32 * group + quad);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = tile.token + row + 8 * half;
      if (token < tile.first_token || token >= tile.end_token) continue;
      std::byte* to = run_address(outputs, token, column, kv_offsets[row + 8 * half]);
      if (to == nullptr) continue;
      float run[8];
      take_run(finish, columns, sums, group, half, run);
      store_run(to, column < outputs.q_dim ? outputs.q_dtype : outputs.kv_dtype, run);
    }
  }
}

}  // namespace quire::cuda
