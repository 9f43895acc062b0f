// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/hopper/flash_attention/decode/params.h"

namespace quire::cuda::hopper {

// A warp asks for all lines of a batch's lengths at once. Whoever adds up the line of work (find_work.cuh)
// takes 32 sequences at a time, one after another, and would otherwise wait for memory each time.
__device__ inline void touch_lengths(const DecodeBatch& batch) {
  constexpr int kLine = 32;  // numbers
  for (int first = static_cast<int>(threadIdx.x % 32) * kLine; first < batch.size;
       first += 32 * kLine) {
    [[maybe_unused]] unsigned unused;
    asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(unused) : "l"(batch.row_offsets + first));
    asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(unused) : "l"(batch.cache_lengths + first));
  }
}

}  // namespace quire::cuda::hopper
