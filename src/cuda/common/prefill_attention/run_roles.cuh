// SPDX-License-Identifier: Apache-2.0
// The body of a prefill kernel, whatever its keys come from: persistent, warp-specialised.
//
//   warp 0          load    tiles off the schedule, q, the blocks of K with warp 1
//   warps 2, 3      load    the blocks of V
//   warpgroups 1 –  attend  64 query rows each: scores, softmax, sums, and the finished rows
#pragma once

#include "cuda/common/prefill_attention/roles/attend.cuh"
#include "cuda/common/prefill_attention/roles/load.cuh"

namespace quire::cuda {

// By every thread of the block. `load(shared)`: the first warpgroup's roles.
template <PrefillConfig kConfig, typename Source, typename Attend, typename Load>
__device__ inline void run_block(const PrefillParams& params, const typename Source::Params& source,
                                 const Load& load) {
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<PrefillShared<kConfig>*>(memory);
  if (threadIdx.x == 0) {
    prefetch(params.q);
    Source::prefetch(source);
    shared.init();
    cutlass::arch::fence_barrier_init();
  }
  sync_cluster<kConfig.cluster>();
  cudaGridDependencySynchronize();  // where the launch overlaps the one before
  if (warpgroup_in_block() == 0) {
    cutlass::arch::warpgroup_reg_dealloc<kConfig.producer_registers()>();
    load(shared);
  } else {
    cutlass::arch::warpgroup_reg_alloc<kConfig.consumer_registers()>();
    Attend(params, shared, warpgroup_in_block() - 1).run();
  }
  // No CTA ends while another may still reach into its shared memory.
  if constexpr (kConfig.cluster > 1) sync_cluster<kConfig.cluster>();
}

template <PrefillConfig kConfig, typename Source, typename Attend = PrefillAttend<kConfig>>
__device__ inline void run_roles(const PrefillParams& params,
                                 const typename Source::Params& source) {
  run_block<kConfig, Source, Attend>(params, source, [&](PrefillShared<kConfig>& shared) {
    PrefillLoad<kConfig, Source> load(params, source, shared, warp_in_block() % 2);
    if (warp_in_block() == 0) {
      load.lead();
    } else if (warp_in_block() == 1) {
      load.load_keys();
    } else {
      load.load_values();
    }
  });
}

}  // namespace quire::cuda
