// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/rows/prefetch.cuh"
#include "cuda/sm90/mla_indexer/params.h"

namespace quire::cuda::sm90::mla_indexer {

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

}  // namespace quire::cuda::sm90::mla_indexer
