// SPDX-License-Identifier: Apache-2.0
// A thread per chunk and sequence.
#include "cuda/hopper/mla_prefill/general/chunk_rows.cuh"
#include "cuda/hopper/mla_prefill/params.h"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) write_spans(const __grid_constant__ SpanParams params) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t chunk = index / params.batch;
  if (chunk >= params.chunks.max_chunks) return;
  const std::int64_t sequence = index % params.batch;
  const std::int64_t num_keys = std::int64_t{params.cache_lengths[sequence]} +
                                params.row_offsets[sequence + 1] - params.row_offsets[sequence];
  const ChunkKeys keys = keys_of_chunk(params.chunks, chunk, sequence, num_keys);
  params.spans.first[index] = static_cast<std::uint32_t>(keys.first);
  params.spans.end[index] = static_cast<std::uint32_t>(keys.last);
  params.spans.buffer_rows[index] = static_cast<std::uint32_t>(keys.buffer_row);
}

}  // namespace

void launch_spans(const SpanParams& params, cudaStream_t stream) {
  const std::int64_t spans = params.chunks.max_chunks * params.batch;
  launch(write_spans, {.grid = dim3(num_blocks(spans, kThreads)), .block = dim3(kThreads)}, stream,
         params);
}

}  // namespace quire::cuda::hopper
