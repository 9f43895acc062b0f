// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/flash_attention/cascade/lengths.h"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

constexpr int kThreads = 128;

// A sequence shorter than the prefix has no query (or breaks the op's contract): it has no own key.
__global__ void __launch_bounds__(kThreads)
    write_lengths(const __grid_constant__ CascadeLengths lengths) {
  const std::int64_t sequence = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (sequence < lengths.batch) {
    const std::uint32_t cached = lengths.cache_lengths[sequence];
    lengths.own_lengths[sequence] = cached > lengths.prefix_keys ? cached - lengths.prefix_keys : 0;
  }
  if (sequence == 0) {
    const std::uint32_t tokens = lengths.row_offsets[lengths.batch];
    lengths.prefix_offsets[0] = 0;
    lengths.prefix_offsets[1] = tokens;
    lengths.prefix_length[0] = lengths.prefix_keys - tokens;
  }
}

}  // namespace

void launch_cascade_lengths(const CascadeLengths& lengths, cudaStream_t stream) {
  launch(write_lengths,
         {.grid = dim3(num_blocks(lengths.batch, kThreads)), .block = dim3(kThreads)}, stream,
         lengths);
}

}  // namespace quire::cuda::hopper
