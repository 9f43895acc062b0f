// SPDX-License-Identifier: Apache-2.0
// Attention of few new tokens per sequence over latent rows of e4m3 in pages. (bf16 rows: seesaw/.)
//
//   warpgroups 0, 1  attend  query rows are tokens × heads (latent_attention/attend.cuh)
//   warpgroup 2      load    walk the cluster's part of the work, convert rows of pages into the ring
//
// Two blocks of a cluster have the same rows and keys, and half of the columns each.
#pragma once

#include "cuda/hopper/latent_attention/attend.cuh"
#include "cuda/hopper/mla_decode/roles/convert_rows.cuh"
#include "cuda/hopper/tile/block.cuh"

namespace quire::cuda::hopper {

// Variant: a named type with a kConfig.
template <typename Variant>
__global__ void __launch_bounds__(LatentConfig::kThreads + LatentConfig::kLoadThreads, 1)
    mla_decode_kernel(const __grid_constant__ MlaDecodeParams params) {
  constexpr LatentConfig kConfig = Variant::kConfig;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<LatentShared<kConfig>*>(memory);
  // The kernel that merges pieces may take its place beside this one and wait there.
  cudaTriggerProgrammaticLaunchCompletion();
  if (threadIdx.x == 0) {
    shared.init();
    cutlass::arch::fence_barrier_init();
  }
  sync_cluster<LatentConfig::kCluster>();
  if (warpgroup_in_block() == LatentConfig::kWarpgroups) {
    cutlass::arch::warpgroup_reg_dealloc<LatentConfig::kLoadRegisters>();
    ConvertRows<kConfig>(params, shared, rank_in_cluster<LatentConfig::kCluster>())
        .run(cluster_index<LatentConfig::kCluster>());
  } else {
    cutlass::arch::warpgroup_reg_alloc<LatentConfig::kAttendRegisters>();
    LatentAttend<kConfig>(params.attend, shared, warpgroup_in_block()).run();
  }
  // The other block may still send here.
  sync_cluster<LatentConfig::kCluster>();
}

}  // namespace quire::cuda::hopper
