// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/hopper/mla_indexer/params.h"
#include "cuda/hopper/tile/ring.cuh"
#include "cuda/hopper/tile/tma.cuh"
#include "cuda/rows/prefetch.cuh"

namespace quire::cuda::hopper {

// What one thread does before all others: maps are sent for, barriers made. A barrier of the block follows.
template <typename Shared>
__device__ inline void prepare(const IndexParams& params, Shared& shared) {
  if (threadIdx.x != 0) return;
  prefetch(params.q);
  prefetch(params.keys);
  prefetch(params.key_scales);
  shared.init();
  cutlass::arch::fence_barrier_init();
}

}  // namespace quire::cuda::hopper
