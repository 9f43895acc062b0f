// SPDX-License-Identifier: Apache-2.0
// Which keys of a sequence a chunk holds, and where in the buffer.
#pragma once

#include "cuda/any/mla_prefill/params.h"
#include "cuda/common/paging/row_reader.cuh"
#include "cuda/common/rows/token_place.cuh"

namespace quire::cuda::any::mla_prefill {

struct ChunkKeys {
  std::int64_t first;       // position of the first key
  std::int64_t last;        // past the last one, not past the sequence's own keys
  std::int64_t buffer_row;  // of the first key

  __device__ bool is_empty() const { return first >= last; }
};

__device__ inline std::int64_t buffer_offset(const ChunkTable& chunks, std::int64_t chunk,
                                             std::int64_t sequence) {
  return chunks.buffer_row_offsets[chunk * chunks.buffer_chunk_stride +
                                   sequence * chunks.buffer_sequence_stride];
}

__device__ inline std::int64_t chunk_length(const ChunkTable& chunks, std::int64_t chunk) {
  return chunks.buffer_lengths[chunk * chunks.lengths_stride];
}

__device__ inline ChunkKeys keys_of_chunk(const ChunkTable& chunks, std::int64_t chunk,
                                          std::int64_t sequence, std::int64_t num_keys) {
  if (chunk_length(chunks, chunk) <= 0) return {0, 0, 0};
  const std::int64_t begin = buffer_offset(chunks, chunk, sequence);
  const std::int64_t rows = buffer_offset(chunks, chunk, sequence + 1) - begin;
  const std::int64_t first = chunks.cache_offsets[chunk * chunks.cache_chunk_stride +
                                                  sequence * chunks.cache_sequence_stride];
  return {min(first, num_keys), min(first + rows, num_keys), begin};
}

// The cache row that stands behind a row of a chunk's buffer.

// The last sequence that begins at or before the row.
__device__ inline std::int64_t sequence_of_row(const ChunkTable& chunks, std::int64_t chunk,
                                               std::int64_t batch, std::int64_t row) {
  std::int64_t low = 0;
  std::int64_t high = batch - 1;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (buffer_offset(chunks, chunk, middle) <= row) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Nobody's for a row without a key.
__device__ inline TokenPlace token_of_row(const KvLayerView& view, const std::uint32_t* row_offsets,
                                          const ChunkTable& chunks, std::int64_t chunk,
                                          std::int64_t row) {
  const std::int64_t sequence = sequence_of_row(chunks, chunk, view.batch, row);
  const std::int64_t num_keys = std::int64_t{view.cache_lengths[sequence]} +
                                row_offsets[sequence + 1] - row_offsets[sequence];
  const ChunkKeys keys = keys_of_chunk(chunks, chunk, sequence, num_keys);
  const std::int64_t position = keys.first + row - keys.buffer_row;
  if (position >= keys.last) return {};
  return {.sequence = sequence, .position = position};
}

// None for a row without a key, or on a page that is not there.
__device__ inline RowPlace place_of_row(const KvLayerView& view, const std::uint32_t* row_offsets,
                                        const ChunkTable& chunks, std::int64_t chunk,
                                        std::int64_t row) {
  const TokenPlace place = token_of_row(view, row_offsets, chunks, chunk, row);
  return place.exists() ? place_row(view, place.sequence, place.position, 0) : RowPlace{};
}

}  // namespace quire::cuda::any::mla_prefill
