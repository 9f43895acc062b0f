// SPDX-License-Identifier: Apache-2.0
// Where a tile's rows go when its heads follow each other and everything is 16 bits wide: one address
// per token, two where the tile holds the end of Q or K and the beginning of what follows. Looked up by
// the warps beside those that multiply.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/kv_offset.cuh"

namespace quire::cuda::hopper {

struct TileRoute {
  int token = 0;        // first of the tile
  int first_token = 0;  // first that is stored
  int end_token = 0;    // behind the last that is stored
  int column = 0;       // first of the tile
  int groups = 0;  // of 32 columns, stored by row addresses; 0: the tile needs one for each run
  DType dtype = DType::bf16;
  int second_group = 0;  // the first that lies in the next of Q, K and V
};

// All but the tokens.
__device__ inline TileRoute tile_route(const QkvOutputs& outputs, int first_column, int tile_n) {
  const int end_column = min(first_column + tile_n, outputs.columns);
  const int border = outputs.end_of_segment(first_column);
  const bool has_border = border < end_column;
  const bool is_dense = end_column <= outputs.q_dim || outputs.heads_are_dense;
  const bool has_two = !has_border || (border % 32 == 0 && outputs.q_dtype == outputs.kv_dtype &&
                                       end_column <= outputs.end_of_segment(border));
  const DType dtype = first_column < outputs.q_dim ? outputs.q_dtype : outputs.kv_dtype;
  const bool is_16_bit = dtype == DType::bf16 || dtype == DType::f16;
  if (!is_dense || !has_two || !is_16_bit || first_column >= end_column) {
    return {.column = first_column};
  }
  return {.column = first_column,
          .groups = (end_column - first_column) / 32,
          .dtype = dtype,
          .second_group = (min(border, end_column) - first_column) / 32};
}

// Of 16-bit numbers; null where the pages have no place. No division by the head size, and no question what
// a number's is: with both the addresses of a tile took longer than its stores.
__device__ inline std::byte* dense_row(const QkvOutputs& outputs, int token, int column,
                                       std::int64_t kv_offset) {
  if (column < outputs.q_dim) {
    return outputs.q + token * outputs.q_stride_bytes + 2 * column;
  }
  if (kv_offset < 0) return nullptr;
  const int within = column - outputs.q_dim;
  std::byte* keys = outputs.keys.data + kv_offset;
  return within < outputs.kv_dim
             ? keys + 2 * within
             : keys + outputs.value_offset_bytes + 2 * (within - outputs.kv_dim);
}

}  // namespace quire::cuda::hopper
