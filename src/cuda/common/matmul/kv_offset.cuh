// SPDX-License-Identifier: Apache-2.0
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

}  // namespace quire::cuda
