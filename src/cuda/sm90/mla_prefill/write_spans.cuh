// SPDX-License-Identifier: Apache-2.0
// What the host cannot know is decided here, a thread per chunk and sequence, chunks that the plan left
// unused above all: those are skipped, and the last one in use finishes the rows.
#pragma once

#include "cuda/any/mla_prefill/chunk_rows.cuh"
#include "cuda/common/prefill_attention/params.h"
#include "cuda/sm90/mla_prefill/params.h"

namespace quire::cuda::sm90::mla_prefill {

inline constexpr int kNoTiles = 0x3fffffff;  // a counter that starts here is past every tile

// A plan without keys has a chunk too, whose rows see nothing.
__device__ inline void link_chunk(const SpanParams& params, std::int64_t chunk) {
  bool is_used = false;
  bool has_earlier = false;
  bool has_later = false;
  for (std::int64_t other = 0; other < params.chunks.max_chunks; ++other) {
    if (any::mla_prefill::chunk_length(params.chunks, other) <= 0) continue;
    is_used = is_used || other == chunk;
    has_earlier = has_earlier || other < chunk;
    has_later = has_later || other > chunk;
  }
  if (chunk == 0 && !has_later) is_used = true;
  params.spans.links[chunk] =
      (has_earlier ? ChainedRows::kContinues : 0) | (has_later ? 0 : ChainedRows::kFinishes);
  for (std::int64_t group = 0; group < params.groups; ++group) {
    params.spans.next_tiles[group * params.chunks.max_chunks + chunk] = is_used ? 0 : kNoTiles;
  }
}

__device__ inline void write_span(const SpanParams& params, std::int64_t index) {
  const std::int64_t chunk = index / params.batch;
  if (chunk >= params.chunks.max_chunks) return;
  const std::int64_t sequence = index % params.batch;
  const std::int64_t num_keys = std::int64_t{params.cache_lengths[sequence]} +
                                params.row_offsets[sequence + 1] - params.row_offsets[sequence];
  const any::mla_prefill::ChunkKeys keys =
      any::mla_prefill::keys_of_chunk(params.chunks, chunk, sequence, num_keys);
  params.spans.first[index] = static_cast<std::uint32_t>(keys.first);
  params.spans.end[index] = static_cast<std::uint32_t>(keys.last);
  params.spans.buffer_rows[index] = static_cast<std::uint32_t>(keys.buffer_row);
  if (sequence == 0) link_chunk(params, chunk);
  if (index == 0) params.spans.zeros[0] = params.spans.zeros[1] = 0;
}

// By `threads` threads, of which this is one.
__device__ inline void write_spans(const SpanParams& params, std::int64_t thread,
                                   std::int64_t threads) {
  const std::int64_t spans = params.chunks.max_chunks * params.batch;
  for (std::int64_t index = thread; index < spans; index += threads) write_span(params, index);
}

}  // namespace quire::cuda::sm90::mla_prefill
