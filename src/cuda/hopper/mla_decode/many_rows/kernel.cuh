// SPDX-License-Identifier: Apache-2.0
// Attention of few new tokens per sequence over bf16 latent rows in pages, more than 64 query rows.
// Roles and their barriers: shared.cuh.
#pragma once

#include "cuda/hopper/mla_decode/many_rows/add_values.cuh"
#include "cuda/hopper/mla_decode/many_rows/load_tiles.cuh"
#include "cuda/hopper/mla_decode/many_rows/score_tiles.cuh"
#include "cuda/hopper/tile/block.cuh"

namespace quire::cuda::hopper {

static __global__ void __launch_bounds__(ManyRows::kThreads, 1)
    mla_decode_many_rows_kernel(const __grid_constant__ MlaDecodeParams params) {
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<ManyRowsShared*>(memory);
  // The kernel that merges pieces may take its place beside this one and wait there.
  cudaTriggerProgrammaticLaunchCompletion();
  if (threadIdx.x == 0) {
    shared.init();
    cutlass::arch::fence_barrier_init();
  }
  sync_cluster<ManyRows::kCluster>();
  const int rank = rank_in_cluster<ManyRows::kCluster>();
  const int warpgroup = warpgroup_in_block();
  if (warpgroup == 2 * ManyRows::kGroups) {
    cutlass::arch::warpgroup_reg_dealloc<ManyRows::kLoadRegisters>();
    if (threadIdx.x % 128 < 32) {
      LoadTiles(params, shared, rank).run(cluster_index<ManyRows::kCluster>());
    }
  } else if (warpgroup < ManyRows::kGroups) {
    cutlass::arch::warpgroup_reg_dealloc<ManyRows::kScoreRegisters>();
    ScoreTiles(params.attend, shared, warpgroup, rank).run();
  } else {
    cutlass::arch::warpgroup_reg_alloc<ManyRows::kValueRegisters>();
    AddValues(params.attend, shared, warpgroup - ManyRows::kGroups, rank).run();
  }
  // The other block may still bring something here, or say that it is done with it.
  sync_cluster<ManyRows::kCluster>();
}

}  // namespace quire::cuda::hopper
