// SPDX-License-Identifier: Apache-2.0
// The cache row that stands behind a row of a chunk's buffer.
#pragma once

#include "cuda/any/mla_prefill/chunk_rows.cuh"
#include "cuda/common/rows/row_reader.cuh"
#include "cuda/common/rows/token_place.cuh"

namespace quire::cuda::any::mla_prefill {

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
