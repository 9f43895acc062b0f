// SPDX-License-Identifier: Apache-2.0
// A warp per 128 latent columns of a buffer row. Rows without a key are zeros: nobody sees them.
#include "cuda/hopper/attention/row_reader.cuh"
#include "cuda/hopper/latent/fp8_group.cuh"
#include "cuda/hopper/mla_prefill/general/chunk_rows.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

// The last sequence that begins at or before the row.
__device__ std::int64_t sequence_of_row(const GatherParams& params, std::int64_t row) {
  std::int64_t low = 0;
  std::int64_t high = params.cache.view.batch - 1;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (buffer_offset(params.chunks, params.chunk, middle) <= row) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

__device__ RowPlace place_of_row(const GatherParams& params, std::int64_t row) {
  const KvLayerView& view = params.cache.view;
  const std::int64_t sequence = sequence_of_row(params, row);
  const std::int64_t num_keys = std::int64_t{view.cache_lengths[sequence]} +
                                params.row_offsets[sequence + 1] - params.row_offsets[sequence];
  const ChunkKeys keys = keys_of_chunk(params.chunks, params.chunk, sequence, num_keys);
  const std::int64_t position = keys.first + row - keys.buffer_row;
  return position < keys.last ? place_row(view, sequence, position, 0) : RowPlace{};
}

__global__ void __launch_bounds__(kThreads)
    gather_latents(const __grid_constant__ GatherParams params) {
  const int groups = (params.latent + kFp8Group - 1) / kFp8Group;
  const std::int64_t index = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  const std::int64_t row = index / groups;
  if (row >= min(params.rows, chunk_length(params.chunks, params.chunk))) return;
  const int first = static_cast<int>(index % groups) * kFp8Group;
  const RowPlace place = place_of_row(params, row);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float values[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int column = first + lane + i * kWarp;
    const bool exists = place.exists() && column < params.latent;
    const double value = exists ? load_column(params.cache.view, place, column) : 0.0f;
    values[i] = static_cast<float>(round_number(params.rounded, value));
  }
  if (is_fp8(params.fp8)) quantize_group(params.fp8, values);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int column = first + lane + i * kWarp;
    if (column < params.latent) params.latents[row * params.latent + column] = values[i];
  }
}

}  // namespace

void launch_gather(const GatherParams& params, cudaStream_t stream) {
  const std::int64_t groups = (params.latent + kFp8Group - 1) / kFp8Group;
  launch(
      gather_latents,
      {.grid = dim3(num_blocks(params.rows * groups * kWarp, kThreads)), .block = dim3(kThreads)},
      stream, params);
}

}  // namespace quire::cuda::hopper
