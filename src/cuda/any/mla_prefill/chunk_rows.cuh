// SPDX-License-Identifier: Apache-2.0
// Which keys of a sequence a chunk holds, and where in the buffer.
#pragma once

#include "cuda/any/mla_prefill/params.h"

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

}  // namespace quire::cuda::any::mla_prefill
