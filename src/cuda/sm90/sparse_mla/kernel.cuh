// SPDX-License-Identifier: Apache-2.0
// Latent attention over chosen rows: 64 heads of a token, tiles of rows gathered from the pages.
//
//   warpgroup 0   score    scores, softmax, sums of the left 256 value columns
//   warpgroup 1   sum      sums of the right 256
//   warpgroup 2   gather   rows and masks; queries by TMA
//
// Two blocks of a cluster may have 64 heads each of one token: each then gathers half of a tile's rows for
// both.
//
// Shared memory holds the queries and a few tiles, no more; so each half of a tile is given back by
// itself, as soon as its last reader is done: rope after the scores, left after the score warpgroup's
// sums, right after the sum warpgroup's.
#pragma once

#include <cute/arch/cluster_sm90.hpp>

#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/sparse_mla/params.h"
#include "cuda/sm90/sparse_mla/roles/gather.cuh"
#include "cuda/sm90/sparse_mla/roles/score.cuh"

namespace quire::cuda::sm90::sparse_mla {

// All threads of a cluster.
template <int kBlocks> __device__ inline void meet() {
  if constexpr (kBlocks == 1) {
    __syncthreads();
  } else {
    __syncwarp();
    cute::cluster_sync();
  }
}

// Variant: a named type with a kConfig.
template <typename Variant>
__global__ void __launch_bounds__(SparseConfig::kThreads, 1)
    sparse_kernel(const __grid_constant__ SparseParams params) {
  constexpr SparseConfig kConfig = Variant::kConfig;
  static_assert(sizeof(SparseShared<Variant>) <= 227 * 1024);
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<SparseShared<Variant>*>(memory);
  const int warpgroup = warpgroup_in_block();
  // The kernel that merges splits may be launched beside this one and wait.
  cudaTriggerProgrammaticLaunchCompletion();
  if (threadIdx.x == 0) {
    prefetch(params.q);
    shared.init();
    cutlass::arch::fence_barrier_init();
  }
  meet<kConfig.blocks>();
  if (warpgroup == 2) {
    cutlass::arch::warpgroup_reg_dealloc<kConfig.gather_registers>();
    GatherRole<Variant>(params, shared).run();
  } else if (warpgroup == 1) {
    cutlass::arch::warpgroup_reg_alloc<kConfig.sum_registers>();
    SumRole<Variant>(params, shared).run();
  } else {
    cutlass::arch::warpgroup_reg_alloc<kConfig.score_registers>();
    ScoreRole<Variant>(params, shared).run();
  }
  // The other block may still write here.
  if constexpr (kConfig.blocks > 1) meet<kConfig.blocks>();
}

template <typename Variant>
void launch_sparse_tiles(const SparseParams& params, int blocks, cudaStream_t stream) {
  launch(sparse_kernel<Variant>,
         {.grid = dim3(static_cast<unsigned>(blocks)),
          .block = dim3(SparseConfig::kThreads),
          .cluster = static_cast<unsigned>(Variant::kConfig.blocks),
          .shared_bytes = sizeof(SparseShared<Variant>)},
         stream, params);
}

}  // namespace quire::cuda::sm90::sparse_mla
