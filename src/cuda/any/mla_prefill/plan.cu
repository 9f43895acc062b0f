// SPDX-License-Identifier: Apache-2.0
// mla_prefill_plan: spans of whole pages laid end to end and cut every buffer_tokens. One block: a
// running sum over the sequences, then each thread writes its sequence's row in every chunk.
#include "cuda/any/mla_prefill/params.h"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::mla_prefill {
namespace {

constexpr int kThreads = 256;

__device__ std::int64_t span_of(const PrefillPlanParams& params, std::int64_t sequence) {
  const std::uint32_t tokens = params.row_offsets[sequence + 1] - params.row_offsets[sequence];
  const std::int64_t decode_tokens = params.chunks.decode_tokens;
  if (decode_tokens > 0 && tokens <= decode_tokens) return 0;
  const std::int64_t keys = std::int64_t{params.cache_lengths[sequence]} + tokens;
  return (keys + params.page_size - 1) / params.page_size * params.page_size;
}

// Sum of the threads up to and with this one; `total`: of all.
__device__ std::int64_t running_sum(std::int64_t value, std::int64_t& total) {
  __shared__ std::int64_t sums[kThreads];
  sums[threadIdx.x] = value;
  __syncthreads();
  for (int step = 1; step < kThreads; step *= 2) {
    const std::int64_t before =
        threadIdx.x >= static_cast<unsigned>(step) ? sums[threadIdx.x - step] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
    __syncthreads();
  }
  const std::int64_t sum = sums[threadIdx.x];
  total = sums[kThreads - 1];
  __syncthreads();
  return sum;
}

__device__ void write_row(const ChunkTable& chunks, std::int64_t chunk, std::int64_t sequence,
                          std::int64_t buffer_row, std::int64_t first_key) {
  chunks.buffer_row_offsets[chunk * chunks.buffer_chunk_stride +
                            sequence * chunks.buffer_sequence_stride] =
      static_cast<std::uint32_t>(buffer_row);
  chunks
      .cache_offsets[chunk * chunks.cache_chunk_stride + sequence * chunks.cache_sequence_stride] =
      static_cast<std::uint32_t>(first_key);
}

// Before the chunk that the sequence starts in all of it is still to come, after it some or all has
// been placed.
__device__ void plan_sequence(const ChunkTable& chunks, std::int64_t sequence, std::int64_t start,
                              std::int64_t span) {
  const std::int64_t home = start / chunks.buffer_tokens;
  const std::int64_t first = start % chunks.buffer_tokens;
  for (std::int64_t chunk = 0; chunk < chunks.max_chunks; ++chunk) {
    const std::int64_t room = (chunk - home) * chunks.buffer_tokens - first;
    const std::int64_t row = chunk < home ? chunks.buffer_tokens : chunk == home ? first : 0;
    write_row(chunks, chunk, sequence, row, chunk <= home ? 0 : min(span, room));
  }
}

__device__ void plan_end(const PrefillPlanParams& params, std::int64_t end) {
  const ChunkTable& chunks = params.chunks;
  for (std::int64_t chunk = threadIdx.x; chunk < chunks.max_chunks; chunk += kThreads) {
    const std::int64_t left = end - chunk * chunks.buffer_tokens;
    const std::int64_t rows = max(std::int64_t{0}, min(left, chunks.buffer_tokens));
    write_row(chunks, chunk, params.batch, rows, 0);
    const std::int64_t unused = params.batch == 0 ? 0 : -1;
    chunks.buffer_lengths[chunk * chunks.lengths_stride] =
        static_cast<std::int32_t>(left > 0 ? rows : unused);
  }
}

__global__ void __launch_bounds__(kThreads)
    plan_chunks(const __grid_constant__ PrefillPlanParams params) {
  std::int64_t before = 0;
  for (std::int64_t first = 0; first < params.batch; first += kThreads) {
    const std::int64_t sequence = first + threadIdx.x;
    const std::int64_t span = sequence < params.batch ? span_of(params, sequence) : 0;
    std::int64_t total = 0;
    const std::int64_t start = before + running_sum(span, total) - span;
    if (sequence < params.batch) plan_sequence(params.chunks, sequence, start, span);
    before += total;
  }
  plan_end(params, before);
}

}  // namespace

void launch_prefill_plan(const PrefillPlanParams& params, cudaStream_t stream) {
  launch(plan_chunks, {.grid = dim3(1), .block = dim3(kThreads)}, stream, params);
}

}  // namespace quire::cuda::any::mla_prefill
