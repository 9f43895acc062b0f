// SPDX-License-Identifier: Apache-2.0
// Attention of many query rows at a time over the pages: persistent, warp-specialised.
//
//   warp 0          load    tiles off the schedule, q and the blocks of K
//   warp 1          load    the blocks of V
//   warpgroups 1 –  attend  64 query rows each: scores, softmax, sums, and the finished rows
#pragma once

#include "cuda/hopper/flash_attention/prefill/roles/attend.cuh"
#include "cuda/hopper/flash_attention/prefill/roles/load.cuh"

namespace quire::cuda::hopper {

template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    prefill_kernel(const __grid_constant__ PrefillParams params) {
  constexpr PrefillConfig kConfig = Variant::kConfig;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<PrefillShared<kConfig>*>(memory);
  if (threadIdx.x == 0) {
    prefetch(params.q);
    prefetch(params.keys);
    prefetch(params.values);
    shared.init();
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  if (warpgroup_in_block() == 0) {
    cutlass::arch::warpgroup_reg_dealloc<PrefillConfig::kProducerRegisters>();
    if (warp_in_block() == 0) PrefillLoad<kConfig>(params, shared).load_keys();
    if (warp_in_block() == 1) PrefillLoad<kConfig>(params, shared).load_values();
  } else {
    cutlass::arch::warpgroup_reg_alloc<PrefillConfig::kConsumerRegisters>();
    PrefillAttend<kConfig>(params, shared, warpgroup_in_block() - 1).run();
  }
}

}  // namespace quire::cuda::hopper
