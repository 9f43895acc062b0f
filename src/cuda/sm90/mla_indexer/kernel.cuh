// SPDX-License-Identifier: Apache-2.0
// Scores and selection of one part of the work list (split_schedule.h).
//
//   warps 0 – 3    choose  a team for each token: the pool, its end, the result
//   warps 4 – 6    load    key tiles, each a warpgroup's
//   warp 7         lead    splits and queries
//   warps 8 – 19   score   key tiles by turns of a warpgroup
#pragma once

#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/mla_indexer/find_part.cuh"
#include "cuda/sm90/mla_indexer/params.h"
#include "cuda/sm90/mla_indexer/roles/choose.cuh"
#include "cuda/sm90/mla_indexer/roles/lead.cuh"
#include "cuda/sm90/mla_indexer/roles/load.cuh"

namespace quire::cuda::sm90::mla_indexer {

inline constexpr int kChoosingGroup = 0;
inline constexpr int kLoadingGroup = 1;
inline constexpr int kFirstScoringGroup = 2;

template <typename Variant>
__global__ void __launch_bounds__(IndexConfig::kThreads, 1)
    index_kernel(const __grid_constant__ IndexParams params) {
  constexpr IndexConfig kConfig = Variant::kConfig;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<IndexShared<kConfig>*>(memory);
  prepare(params, shared);
  const int warpgroup = warpgroup_in_block();
  if (warpgroup == kLoadingGroup) IndexLoad<kConfig>::send_for_pages(params);
  __syncthreads();
  cudaTriggerProgrammaticLaunchCompletion();
  if (warpgroup == kChoosingGroup) {
    if constexpr (kConfig.shares_registers()) {
      cutlass::arch::warpgroup_reg_dealloc<IndexConfig::kChooserRegisters>();
    }
    IndexChoose<kConfig>(params, shared).run();
  } else if (warpgroup == kLoadingGroup) {
    if constexpr (kConfig.shares_registers()) {
      cutlass::arch::warpgroup_reg_dealloc<IndexConfig::kLoaderRegisters>();
    }
    const int warp = warp_in_block() % 4;
    if (warp == IndexConfig::kWarpgroups) {
      IndexLead<kConfig>(params, shared).run();
    } else {
      IndexLoad<kConfig>(params, shared, warp).run();
    }
  } else {
    if constexpr (kConfig.shares_registers()) {
      cutlass::arch::warpgroup_reg_alloc<IndexConfig::kScorerRegisters>();
    }
    IndexScore<kConfig>(params, shared, warpgroup - kFirstScoringGroup).run();
  }
}

template <typename Variant> void launch_index(const IndexParams& params, cudaStream_t stream) {
  constexpr int kSharedOfABlock = 227 * 1024;
  using Shared = IndexShared<Variant::kConfig>;
  static_assert(sizeof(Shared) <= kSharedOfABlock);
  launch(index_kernel<Variant>,
         {.grid = dim3(static_cast<unsigned>(params.parts)),
          .block = dim3(IndexConfig::kThreads),
          .shared_bytes = sizeof(Shared)},
         stream, params);
}

}  // namespace quire::cuda::sm90::mla_indexer
