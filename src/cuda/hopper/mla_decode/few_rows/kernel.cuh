// SPDX-License-Identifier: Apache-2.0
// Attention of few query rows of a sequence over latent rows in pages.
// Roles and their barriers: shared.cuh.
#pragma once

#include "cuda/hopper/mla_decode/few_rows/attend_rows.cuh"
#include "cuda/hopper/mla_decode/few_rows/load_rows.cuh"
#include "cuda/hopper/tile/block.cuh"

namespace quire::cuda::hopper {

// Variant: a named type with a kConfig.
template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    mla_decode_few_rows_kernel(const __grid_constant__ MlaDecodeParams params) {
  constexpr FewRowsConfig kConfig = Variant::kConfig;
  constexpr bool kMovesRegisters = kConfig.groups() > 1;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<FewRowsShared<kConfig>*>(memory);
  // The kernel that merges pieces may take its place beside this one and wait there.
  cudaTriggerProgrammaticLaunchCompletion();
  if (threadIdx.x == 0) {
    shared.init(params.format.token_scales != nullptr);
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  const int warpgroup = warpgroup_in_block();
  if (warpgroup == kConfig.groups()) {
    if constexpr (kMovesRegisters) {
      cutlass::arch::warpgroup_reg_dealloc<FewRowsConfig::kLoadRegisters>();
    }
    if (threadIdx.x % 128 < 32) LoadRows<kConfig>(params, shared).run();
  } else {
    if constexpr (kMovesRegisters) {
      cutlass::arch::warpgroup_reg_alloc<FewRowsConfig::kAttendRegisters>();
    }
    AttendRows<kConfig>(params, shared, warpgroup).run();
  }
}

}  // namespace quire::cuda::hopper
