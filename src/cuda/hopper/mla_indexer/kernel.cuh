// SPDX-License-Identifier: Apache-2.0
// Scores and selection of one part of the line (work_line.h).
//
//   warps 0 – 7  score  key tiles by turns of a warpgroup, then the selection
//   warp 8       load   pieces, queries and key tiles
#pragma once

#include "cuda/hopper/mla_indexer/roles/load.cuh"
#include "cuda/hopper/mla_indexer/roles/score.cuh"

namespace quire::cuda::hopper {

template <typename Variant>
__global__ void __launch_bounds__(IndexConfig::kThreads, IndexConfig::kBlocksPerSm)
    index_kernel(const __grid_constant__ IndexParams params) {
  constexpr IndexConfig kConfig = Variant::kConfig;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<IndexShared<kConfig>*>(memory);
  if (threadIdx.x == 0) {
    prefetch(params.q);
    prefetch(params.keys);
    prefetch(params.key_scales);
    shared.init();
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  cudaTriggerProgrammaticLaunchCompletion();
  if (warp_in_block() == IndexConfig::kScorers / 32) {
    IndexLoad<kConfig>(params, shared).run();
  } else {
    IndexScore<kConfig>(params, shared).run();
  }
}

}  // namespace quire::cuda::hopper
