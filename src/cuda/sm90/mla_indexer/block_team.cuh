// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/mla_indexer/team.cuh"

namespace quire::cuda::sm90::mla_indexer {

// All threads of a thread block, by its own barrier. It names no number of threads, so that it is told from those
// of some of them.
template <int kNumThreads> struct BlockTeam {
  static constexpr int kThreads = kNumThreads;
  static constexpr int kWarps = kNumThreads / 32;

  int thread = static_cast<int>(threadIdx.x);

  __device__ void sync() const { __syncthreads(); }
  __device__ int lane() const { return thread % 32; }
  __device__ int warp() const { return thread / 32; }
  // True for all if it is for one of them; a sync too.
  __device__ bool any(bool value) const { return __syncthreads_or(value ? 1 : 0) != 0; }
};

}  // namespace quire::cuda::sm90::mla_indexer
