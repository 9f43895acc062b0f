// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/flash_attention/ragged_lengths.h"

#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::flash_attention {
namespace {

constexpr unsigned kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    ragged_lengths_kernel(const __grid_constant__ RaggedLengths params) {
  const std::int64_t sequence = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (sequence >= params.batch) return;
  const std::uint32_t keys = params.key_offsets[sequence + 1] - params.key_offsets[sequence];
  const std::uint32_t queries = params.row_offsets[sequence + 1] - params.row_offsets[sequence];
  params.lengths[sequence] = keys - queries;
}

}  // namespace

void launch_ragged_lengths(const RaggedLengths& params, cudaStream_t stream) {
  launch(ragged_lengths_kernel,
         {.grid = dim3(num_blocks(params.batch, kThreads)), .block = dim3(kThreads)}, stream,
         params);
}

}  // namespace quire::cuda::any::flash_attention
