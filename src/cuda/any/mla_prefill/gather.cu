// SPDX-License-Identifier: Apache-2.0
// A warp per 128 latent columns of a buffer row. Rows without a key are zeros: nobody sees them.
#include "cuda/any/mla_prefill/chunk_rows.cuh"
#include "cuda/common/mla/fp8_group.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::mla_prefill {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

// A stored number times its scale, exact: the rounding to q's dtype is the only one.
__device__ double load_exactly(const KvLayerView& view, const RowPlace& place, int column) {
  const RowFormat::Column at = view.row_format.locate(column);
  const RowPart& part = view.row_format.parts[at.part];
  const double number = load_row_once(place.row + part.offset_bytes, part.dtype, at.index);
  return number * scale_of(view, part, place, column, at.index);
}

__global__ void __launch_bounds__(kThreads)
    gather_latents(const __grid_constant__ GatherParams params) {
  const int groups = (params.latent + kFp8Group - 1) / kFp8Group;
  const std::int64_t index = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  const std::int64_t row = index / groups;
  if (row >= min(params.rows, chunk_length(params.chunks, params.chunk))) return;
  const int first = static_cast<int>(index % groups) * kFp8Group;
  const RowPlace place =
      place_of_row(params.cache.view, params.row_offsets, params.chunks, params.chunk, row);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float values[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int column = first + lane + i * kWarp;
    const bool exists = place.exists() && column < params.latent;
    const double value = exists ? load_exactly(params.cache.view, place, column) : 0.0;
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

}  // namespace quire::cuda::any::mla_prefill
