// SPDX-License-Identifier: Apache-2.0
// Where a tile's rows go when its heads follow each other and everything is 16 bits wide, or f32 and a product of
// f32: one address per token, two where the tile holds the end of Q or K and the beginning of what follows.
// Looked up by the warps beside those that multiply.
#pragma once

#include "cuda/common/matmul/params.h"
#include "cuda/common/paging/page_cursor.cuh"

namespace quire::cuda {

__device__ inline StoredTokens stored_tokens(const QkvOutputs& outputs) {
  return {outputs.keys, outputs.row_offsets, outputs.batch, outputs.tokens};
}

struct TileRoute {
  int token = 0;        // first of the tile
  int first_token = 0;  // first that is stored
  int end_token = 0;    // behind the last that is stored
  int column = 0;       // first of the tile
  int groups = 0;  // of 32 columns, stored by row addresses; 0: the tile needs one for each run
  DType dtype = DType::bf16;
  int second_group = 0;  // the first that lies in the next of Q, K and V
};

// What tiles of products of kOperands are stored as by row addresses. Products of other types are hardly ever
// stored as f32.
template <DType kOperands> __device__ constexpr bool goes_by_rows(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 ||
         (kOperands == DType::f32 && dtype == DType::f32);
}

// Bytes of a number that is stored by row addresses.
template <DType kOperands> __device__ constexpr int number_bytes(DType dtype) {
  return kOperands == DType::f32 && dtype == DType::f32 ? 4 : 2;
}

// All but the tokens.
template <DType kOperands>
__device__ inline TileRoute tile_route(const QkvOutputs& outputs, int first_column, int tile_n) {
  const int end_column = min(first_column + tile_n, outputs.columns);
  const int border = outputs.end_of_segment(first_column);
  const bool has_border = border < end_column;
  const bool is_dense = end_column <= outputs.q_dim || outputs.heads_are_dense;
  const bool has_two = !has_border || (border % 32 == 0 && outputs.q_dtype == outputs.kv_dtype &&
                                       end_column <= outputs.end_of_segment(border));
  const DType dtype = first_column < outputs.q_dim ? outputs.q_dtype : outputs.kv_dtype;
  if (!is_dense || !has_two || !goes_by_rows<kOperands>(dtype) || first_column >= end_column) {
    return {.column = first_column};
  }
  return {.column = first_column,
          .groups = (end_column - first_column) / 32,
          .dtype = dtype,
          .second_group = (min(border, end_column) - first_column) / 32};
}

// Of numbers of `bytes` bytes; null where the pages have no place. No division by the head size, and no question
// what a number's is where all are 16 bits wide: with both the addresses of a tile took longer than its stores.
__device__ inline std::byte* dense_row(const QkvOutputs& outputs, int token, int column, int bytes,
                                       std::int64_t kv_offset) {
  if (column < outputs.q_dim) {
    return outputs.q + token * outputs.q_stride_bytes + bytes * column;
  }
  if (kv_offset < 0) return nullptr;
  const int within = column - outputs.q_dim;
  std::byte* keys = outputs.keys.data + kv_offset;
  return within < outputs.kv_dim
             ? keys + bytes * within
             : keys + outputs.value_offset_bytes + bytes * (within - outputs.kv_dim);
}

}  // namespace quire::cuda
