// SPDX-License-Identifier: Apache-2.0
// Attention of few new tokens per sequence over bf16 latent rows in pages.
// Roles and their barriers: shared.cuh.
#pragma once

#include "cuda/hopper/mla_decode/roles/find_part.cuh"
#include "cuda/hopper/mla_decode/seesaw/attend_pairs.cuh"
#include "cuda/hopper/mla_decode/seesaw/load_rows_of_q.cuh"
#include "cuda/hopper/mla_decode/seesaw/load_tiles.cuh"
#include "cuda/hopper/tile/block.cuh"

namespace quire::cuda::hopper {

__device__ inline void load_for_pairs(const MlaDecodeParams& params, SeesawShared& shared,
                                      int cluster, int rank) {
  const auto thread = static_cast<int>(threadIdx.x % 128);
  const int warp = __shfl_sync(kWholeWarp, thread / 32, 0);
  const ClusterPart part = find_part(params, shared.line, cluster, thread);
  const WorkWalk walk(params.batch, params.split, part.cuts, part.place, cluster);
  if (warp < 2) {
    LoadHalves(params, shared, warp, rank, part.cuts.total).run(walk);
  } else {
    LoadRowsOfQ(params, shared, warp - 2, rank).run(walk);
  }
}

static __global__ void __launch_bounds__(Seesaw::kThreads, 1)
    mla_decode_seesaw_kernel(const __grid_constant__ MlaDecodeParams params) {
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<SeesawShared*>(memory);
  if (threadIdx.x == 0) prefetch(params.latents);
  if (threadIdx.x == 32) prefetch(params.tails);
  fetch_part(params);
  // The kernel that merges pieces may take its place beside this one and wait there.
  cudaTriggerProgrammaticLaunchCompletion();
  if (threadIdx.x == 0) {
    shared.init();
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  const auto rank = static_cast<int>(cute::block_rank_in_cluster());
  const int warpgroup = warpgroup_in_block();
  if (warpgroup == Seesaw::kGroups) {
    cutlass::arch::warpgroup_reg_dealloc<Seesaw::kLoadRegisters>();
    load_for_pairs(params, shared, static_cast<int>(cute::cluster_id_in_grid().x), rank);
  } else {
    cutlass::arch::warpgroup_reg_alloc<Seesaw::kAttendRegisters>();
    AttendPairs(params.attend, shared, warpgroup, rank).run();
  }
}

}  // namespace quire::cuda::hopper
