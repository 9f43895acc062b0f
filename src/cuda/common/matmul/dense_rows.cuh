// SPDX-License-Identifier: Apache-2.0
// Where a tile's rows go when its heads follow each other and everything is 16 bits wide, or f32 and a product of
// f32: one address per token, two where the tile holds the end of Q or K and the beginning of what follows.
// Looked up by the warps beside those that multiply.
#pragma once

#include "cuda/common/matmul/params.h"
#include "cuda/common/rows/token_place.cuh"

namespace quire::cuda {

// Byte offset of the token's K row (head 0) from keys.data; -1 for a token past the end or a page
// that is not there.
__device__ inline std::int64_t kv_offset(const QkvOutputs& outputs, int token) {
  if (token >= outputs.tokens) return -1;
  const std::uint32_t* offsets = outputs.row_offsets;
  const int sequence = sequence_of(offsets, outputs.batch, static_cast<std::uint32_t>(token));
  const std::int64_t position =
      std::int64_t{outputs.keys.cache_lengths[sequence]} + token - offsets[sequence];
  const std::byte* row = outputs.keys.row(sequence, position, 0);
  return row == nullptr ? -1 : row - outputs.keys.data;
}

// Of tokens `first`, `first + step` …, side by side: a lookup is a chain of some ten loads, and a
// thread that followed one chain after the other was later than the products of few tokens.
template <int kTokens>
__device__ inline void look_up_offsets(const QkvOutputs& outputs, int first, int step,
                                       std::int64_t (&found)[kTokens]) {
  const std::uint32_t* offsets = outputs.row_offsets;
  int sequences[kTokens] = {};
  for (int left = outputs.batch; left > 1; left -= left / 2) {
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const int middle = sequences[i] + left / 2;
      if (offsets[middle] <= static_cast<std::uint32_t>(first + i * step)) sequences[i] = middle;
    }
  }
  std::int64_t positions[kTokens];
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    positions[i] = std::int64_t{outputs.keys.cache_lengths[sequences[i]]} + first + i * step -
                   offsets[sequences[i]];
  }
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    const int token = first + i * step;
    const std::byte* row =
        token < outputs.tokens ? outputs.keys.row(sequences[i], positions[i], 0) : nullptr;
    found[i] = row == nullptr ? -1 : row - outputs.keys.data;
  }
}

// Byte offset of the token's first scale of K in the plane; -1 where there is none.
__device__ inline std::int64_t scale_offset(const QkvOutputs& outputs, int token) {
  if (token >= outputs.tokens) return -1;
  const KvLayerView& keys = outputs.keys;
  const std::uint32_t* offsets = outputs.row_offsets;
  const int sequence = sequence_of(offsets, outputs.batch, static_cast<std::uint32_t>(token));
  // In 32 bits, as lengths are: a division in 64 has no registers here.
  const std::uint32_t position = keys.cache_lengths[sequence] + token - offsets[sequence];
  const std::uint32_t column = position / static_cast<std::uint32_t>(keys.page_size);
  if (column >= keys.max_pages) return -1;
  const ScaleLayerView& scales = keys.scales;
  const std::int64_t page = scales.page_table[sequence * scales.page_table_stride + column];
  if (page >= scales.num_pages) return -1;
  const std::uint32_t slot = position - column * keys.page_size;
  return (page * scales.page_stride + slot * scales.token_stride) * (bits(scales.dtype) / 8);
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
