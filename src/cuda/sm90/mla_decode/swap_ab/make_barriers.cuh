// SPDX-License-Identifier: Apache-2.0
// A block's barriers are made by its first warp. The warps that load wait for that one alone, not for the rest of the
// block: from knowing their part of the work they go on to the first copy in code without jumps. (Code that runs once is
// mostly waited for.)
#pragma once

#include "cuda/sm90/mla_decode/swap_ab/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

struct MadeBarriers {
  // Named barriers, and who meets there: the warps that load and the first one; all others.
  static constexpr std::uint32_t kForLoads = 3;
  static constexpr std::uint32_t kForOthers = 4;
  static constexpr int kLoadThreads = 32 * (SwapAbConfig::kGroupWarps + 1);
  static constexpr int kOtherThreads = 32 * 2 * SwapAbConfig::kWarps;
};

// By all warps but those that load.
template <SwapAbConfig kConfig>
__device__ inline void make_barriers(SwapAbShared<kConfig>& shared, bool copies_scales) {
  if (threadIdx.x < 32) {
    if (threadIdx.x == 0) {
      shared.init(copies_scales);
      cutlass::arch::fence_barrier_init();
    }
    __syncwarp();
    cutlass::arch::NamedBarrier::arrive(MadeBarriers::kLoadThreads, MadeBarriers::kForLoads);
  }
  cutlass::arch::NamedBarrier::sync(MadeBarriers::kOtherThreads, MadeBarriers::kForOthers);
}

// By the warps that load.
__device__ inline void await_barriers() {
  cutlass::arch::NamedBarrier::sync(MadeBarriers::kLoadThreads, MadeBarriers::kForLoads);
}

}  // namespace quire::cuda::sm90::mla_decode
