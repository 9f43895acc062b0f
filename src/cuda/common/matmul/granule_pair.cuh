// SPDX-License-Identifier: Apache-2.0
// Columns that share a scale and stand in the tiles of two blocks: each block tells the other, which is rank ^ 1 in
// the cluster, the largest magnitude of its part.
#pragma once

#include "cuda/common/matmul/config.h"
#include "cuda/common/mma/wgmma.cuh"
#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/thread/block.cuh"
#include "cuda/common/thread/block_address.cuh"

namespace quire::cuda {

// Shared memory; nothing where every tile has its granules whole.
template <TileConfig kConfig> struct GranulePair {
  __device__ void init() {}
};

template <TileConfig kConfig>
requires(kConfig.pairs_granules()) struct GranulePair<kConfig> {
  // Two exchanges in turn: the other block is at most one ahead.
  float largest[2][kConfig.tokens()];
  FullBarrier full[2][kConfig.consumers];

  __device__ void init() {
    for (auto& turn : full) {
      for (FullBarrier& barrier : turn) barrier.init(1);
    }
  }

  // By all threads of a warpgroup: of rows `row` and `row + 8` the larger of both parts, for the `count`-th time.
  __device__ void exchange(int consumer, int row, int count, float (&own)[2]) {
    const int turn = count % 2;
    FullBarrier& barrier = full[turn][consumer];
    if (threadIdx.x % 128 == 0) barrier.arrive_and_expect_tx(kWgmmaRows * sizeof(float));
    const std::uint32_t other = cute::block_rank_in_cluster() ^ 1;
    if (threadIdx.x % 4 == 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        asm volatile(
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                address_in_block(&largest[turn][row + 8 * half], other)),
            "r"(__float_as_uint(own[half])), "r"(address_in_block(&barrier, other))
            : "memory");
      }
    }
    barrier.wait(count / 2 % 2);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      own[half] = fmaxf(own[half], largest[turn][row + 8 * half]);
    __syncwarp();  // all of them have read before one of them sends again
  }
};

}  // namespace quire::cuda
