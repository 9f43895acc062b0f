// SPDX-License-Identifier: Apache-2.0
// Scores and selection of one part of the line (work_line.h).
//
//   warps 0 – 11   score   key tiles by turns of a warpgroup
//   warps 12 – 15  choose  a team for each token: the pool, its end, the result
//   warps 16 – 18  load    key tiles, each a warpgroup's
//   warp 19        lead    pieces and queries
#pragma once

#include "cuda/hopper/mla_indexer/prepare.cuh"
#include "cuda/hopper/mla_indexer/roles/choose.cuh"
#include "cuda/hopper/mla_indexer/roles/lead.cuh"
#include "cuda/hopper/mla_indexer/roles/load.cuh"
#include "cuda/hopper/mla_indexer/roles/score.cuh"

namespace quire::cuda::hopper {

template <typename Variant>
__global__ void __launch_bounds__(IndexConfig::kThreads, 1)
    index_kernel(const __grid_constant__ IndexParams params) {
  constexpr IndexConfig kConfig = Variant::kConfig;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<IndexShared<kConfig>*>(memory);
  prepare(params, shared);
  __syncthreads();
  cudaTriggerProgrammaticLaunchCompletion();
  const int warpgroup = warpgroup_in_block();
  if (warpgroup < IndexConfig::kWarpgroups) {
    if constexpr (kConfig.shares_registers()) {
      cutlass::arch::warpgroup_reg_alloc<IndexConfig::kScorerRegisters>();
    }
    IndexScore<kConfig>(params, shared).run();
  } else if (warpgroup == IndexConfig::kWarpgroups) {
    if constexpr (kConfig.shares_registers()) {
      cutlass::arch::warpgroup_reg_dealloc<IndexConfig::kChooserRegisters>();
    }
    IndexChoose<kConfig>(params, shared).run();
  } else {
    if constexpr (kConfig.shares_registers()) {
      cutlass::arch::warpgroup_reg_dealloc<IndexConfig::kLoaderRegisters>();
    }
    const int warp = warp_in_block() % 4;
    if (warp == IndexConfig::kWarpgroups) {
      IndexLead<kConfig>(params, shared).run();
    } else {
      IndexLoad<kConfig>(params, shared, warp).run();
    }
  }
}

}  // namespace quire::cuda::hopper
