// SPDX-License-Identifier: Apache-2.0
// Attention of few new tokens per sequence over bf16 latent rows in pages.
// Roles and their barriers: shared.cuh.
#pragma once

#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/mla_decode/latent/shared.cuh"
#include "cuda/sm90/mla_decode/pingpong/attend_pairs.cuh"
#include "cuda/sm90/mla_decode/pingpong/load_tiles.cuh"
#include "cuda/sm90/mla_decode/variants.h"

namespace quire::cuda::sm90::mla_decode {

__device__ inline void load_for_pairs(const MlaDecodeParams& params, PingpongShared& shared,
                                      const ClusterPart& part, int cluster, int rank) {
  const int warp = __shfl_sync(kWholeWarp, static_cast<int>(threadIdx.x % 128) / 32, 0);
  const WorkWalk walk(params.batch, params.schedule, part.cuts, part.place, cluster);
  if (warp < 2) {
    LoadHalves(params, shared, warp, rank, part.cuts.total).run(walk);
  } else {
    LoadRowsOfQ(params, shared, warp - 2, rank).run(walk);
  }
}

static __global__ void __launch_bounds__(Pingpong::kThreads, 1)
    mla_decode_pingpong_kernel(const __grid_constant__ MlaDecodeParams params) {
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<PingpongShared*>(memory);
  if (threadIdx.x == 0) prefetch(params.latents);
  if (threadIdx.x == 32) prefetch(params.tails);
  fetch_part(params);
  // The kernel that merges splits may take its place beside this one and wait there.
  cudaTriggerProgrammaticLaunchCompletion();
  if (threadIdx.x == 0) {
    shared.init();
    cutlass::arch::fence_barrier_init();
  }
  // 64, 128 or 256 rows of a work tile: who shares their keys with how many, whether launched as a cluster or not.
  const int sharing = params.attend.splits.rows / Pingpong::kRows;
  const auto block = static_cast<int>(blockIdx.x);
  const int cluster = block >> (__ffs(sharing) - 1);
  const int rank = block & (sharing - 1);
  const int warpgroup = warpgroup_in_block();
  ClusterPart part;
  if (warpgroup == Pingpong::kGroups) {  // beside the barriers, which it does not need
    part = find_part(params, shared.work_scan, cluster, static_cast<int>(threadIdx.x % 128));
  }
  __syncthreads();
  if (warpgroup == Pingpong::kGroups) {
    cutlass::arch::warpgroup_reg_dealloc<Pingpong::kLoadRegisters>();
    load_for_pairs(params, shared, part, cluster, rank);
  } else {
    cutlass::arch::warpgroup_reg_alloc<Pingpong::kAttendRegisters>();
    AttendPairs(params.attend, shared, warpgroup, rank).run();
  }
}

template <typename Variant>
void launch_pingpong(const MlaDecodeParams& params, cudaStream_t stream) {
  static_assert(sizeof(PingpongShared) <= 227 * 1024);
  static_assert(Variant::kRows == Variant::kCluster * Pingpong::kRows);
  // Four blocks are two clusters: clusters of four would leave 12 multiprocessors idle.
  constexpr unsigned kTogether = Variant::kCluster > 1 ? 2 : 1;
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(params.schedule.blocks * Variant::kCluster)),
      .block = dim3(Pingpong::kThreads),
      .cluster = kTogether,
      .shared_bytes = sizeof(PingpongShared)};
  launch(mla_decode_pingpong_kernel, shape, stream, params);
}

}  // namespace quire::cuda::sm90::mla_decode
