// SPDX-License-Identifier: Apache-2.0
// Attention of few new tokens per sequence over bf16 latent rows in pages.
// Roles and their barriers: shared.cuh.
#pragma once

#include "cuda/hopper/mla_decode/by_role/add_values.cuh"
#include "cuda/hopper/mla_decode/by_role/load_tiles.cuh"
#include "cuda/hopper/mla_decode/by_role/score_tiles.cuh"
#include "cuda/hopper/tile/block.cuh"

namespace quire::cuda::hopper {

static __global__ void __launch_bounds__(ByRole::kThreads, 1)
    mla_decode_by_role_kernel(const __grid_constant__ MlaDecodeParams params) {
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<ByRoleShared*>(memory);
  // The kernel that merges pieces may take its place beside this one and wait there.
  cudaTriggerProgrammaticLaunchCompletion();
  if (threadIdx.x == 0) {
    shared.init();
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  const int blocks = params.attend.pieces.rows / ByRole::kRows;  // of a cluster
  const int rank = static_cast<int>(blockIdx.x) % blocks;
  const int warpgroup = warpgroup_in_block();
  if (warpgroup == 2 * ByRole::kGroups) {
    cutlass::arch::warpgroup_reg_dealloc<ByRole::kLoadRegisters>();
    if (threadIdx.x % 128 < 32) {
      LoadTiles(params, shared, rank).run(static_cast<int>(blockIdx.x) / blocks);
    }
  } else if (warpgroup < ByRole::kGroups) {
    cutlass::arch::warpgroup_reg_dealloc<ByRole::kScoreRegisters>();
    ScoreTiles(params.attend, shared, warpgroup, rank).run();
  } else {
    cutlass::arch::warpgroup_reg_alloc<ByRole::kValueRegisters>();
    AddValues(params.attend, shared, warpgroup - ByRole::kGroups, rank).run();
  }
}

}  // namespace quire::cuda::hopper
