// SPDX-License-Identifier: Apache-2.0
// How far a block of keys is: a word that the warps which expand it add to, a quarter of its rows each,
// and which those that load it wait for. Rows are written by threads and read by the copy engine:
// both sides put a fence between the two.
//
//   bits 0 – 7    quarters that are there
//   bits 8 – 23   bit g: keys 8g … 8g + 7 have no page
#pragma once

#include <cstdint>

#include "cuda/common/thread/release.cuh"

namespace quire::cuda::sm90::flash_attention {

inline constexpr int kBlockQuarters = 4;

// By a whole warp, its rows of K and V written. `missing`: a bit for each 8 of the quarter's 32 keys.
__device__ inline void finish_quarter(std::uint32_t* keys, std::uint32_t* values, int quarter,
                                      std::uint32_t missing) {
  asm volatile("fence.proxy.async.global;" ::: "memory");
  __syncwarp();
  const std::uint32_t word = 1U | missing << (8 + kBlockQuarters * quarter);
  if (threadIdx.x % 32 == 0) add_released(keys, word);
  if (threadIdx.x % 32 == 1) add_released(values, word);
}

// By a whole warp. Bit g: keys 8g … 8g + 7 of the block have no page.
__device__ inline std::uint32_t await_block(const std::uint32_t* state) {
  std::uint32_t word;
  do {
    word = load_acquired(state);
  } while ((word & 0xff) != kBlockQuarters);
  asm volatile("fence.proxy.async.global;" ::: "memory");
  return word >> 8;
}

}  // namespace quire::cuda::sm90::flash_attention
