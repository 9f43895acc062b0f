// SPDX-License-Identifier: Apache-2.0
// What the branch's own kernels receive.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/any/mla_prefill/params.h"

namespace quire::cuda::sm90::mla_prefill {

// What the plan says of each chunk, as the attention reads it.
struct ChunkSpans {
  std::uint32_t* first = nullptr;        // [max_chunks, batch], positions
  std::uint32_t* end = nullptr;          // [max_chunks, batch]
  std::uint32_t* buffer_rows = nullptr;  // [max_chunks, batch], of the first
  std::uint32_t* links = nullptr;        // [max_chunks], as ChainedRows has them
  int* next_tiles = nullptr;             // [groups, max_chunks], where tile counters start
  std::uint32_t* zeros = nullptr;        // [2]
};

struct SpanParams {
  any::mla_prefill::ChunkTable chunks;
  const std::uint32_t* row_offsets = nullptr;    // [batch + 1]
  const std::uint32_t* cache_lengths = nullptr;  // [batch]
  std::int64_t batch = 0;
  std::int64_t groups = 0;  // of heads
  ChunkSpans spans;
};

// Rows of one chunk out of the pages: latents as the up-projection multiplies them, rope columns as
// the attention does. The first launch of a call writes the spans too.
struct GatherRowsParams {
  RowReader cache;
  const std::uint32_t* row_offsets = nullptr;
  any::mla_prefill::ChunkTable chunks;
  std::int64_t chunk = 0;
  std::int64_t rows = 0;         // of the buffer
  std::int32_t latent = 0;       // a multiple of 16
  std::int32_t rope = 0;         // a multiple of 8
  DType dtype = DType::bf16;     // q's
  std::byte* latents = nullptr;  // [rows, latent], of q's dtype or, with scales, e4m3
  float* scales = nullptr;       // [rows, scale_stride], one per 128 latents, or null
  std::int64_t scale_stride = 0;
  std::byte* rope_rows = nullptr;  // [rows, rope]
  DType rope_dtype = DType::bf16;  // q's, or e4m3
  SpanParams spans;                // none without a batch
  bool follows_kernel = true;      // of this call, whose end it waits for itself
};

void launch_gather_rows(const GatherRowsParams& params, cudaStream_t stream);

}  // namespace quire::cuda::sm90::mla_prefill
