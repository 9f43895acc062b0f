// SPDX-License-Identifier: Apache-2.0
// Attention of few query rows of a sequence over latent rows of e4m3 in pages.
// Roles and their barriers: shared.cuh.
#pragma once

#include "cuda/hopper/mla_decode/few_rows/attend_bytes.cuh"
#include "cuda/hopper/mla_decode/few_rows/load_bytes.cuh"
#include "cuda/hopper/tile/block.cuh"

namespace quire::cuda::hopper {

// Variant: a named type with kRows and kStages.
template <typename Variant>
__global__ void __launch_bounds__(FewRows::kThreads, 1)
    mla_decode_few_rows_kernel(const __grid_constant__ MlaDecodeParams params) {
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<FewRowsShared<Variant>*>(memory);
  // The kernel that merges pieces may take its place beside this one and wait there.
  cudaTriggerProgrammaticLaunchCompletion();
  if (threadIdx.x == 0) {
    shared.init(params.format.token_scales != nullptr);
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  const int warpgroup = warpgroup_in_block();
  if (warpgroup == FewRows::kGroups) {
    cutlass::arch::warpgroup_reg_dealloc<FewRows::kLoadRegisters>();
    if (threadIdx.x % 128 < 32) LoadBytes<Variant>(params, shared).run();
  } else {
    cutlass::arch::warpgroup_reg_alloc<FewRows::kAttendRegisters>();
    AttendBytes<Variant>(params, shared, warpgroup).run();
  }
}

}  // namespace quire::cuda::hopper
