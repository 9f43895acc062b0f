// SPDX-License-Identifier: Apache-2.0
// Latent attention over chosen e4m3 rows: keys are the rows of both products, heads their columns.
//
//   warpgroups 0, 1   attend   decode into registers, score, weigh, sum
//   warpgroup 2       gather   rows by TMA, one instruction each
//
//   scores [64 keys × heads]      = rows [64 × 576] · queriesᵀ      A in registers, B in shared memory
//   sums   [512 columns × heads] += values [64 × 512]ᵀ · weights    likewise, fetched transposed
//
// No decoded tile is ever written: shared memory is left to bytes on their way, and a product is as
// wide as there are heads.
#pragma once

#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/sparse_mla/fp8/roles/attend.cuh"
#include "cuda/sm90/sparse_mla/fp8/roles/gather.cuh"
#include "cuda/sm90/sparse_mla/params.h"

namespace quire::cuda::sm90::sparse_mla {

// Variant: a named type with a kConfig.
template <typename Variant>
__global__ void __launch_bounds__(Fp8Config::kThreads, 1)
    sparse_fp8_kernel(const __grid_constant__ SparseParams params) {
  constexpr Fp8Config kConfig = Variant::kConfig;
  static_assert(sizeof(Fp8Shared<Variant>) <= 227 * 1024);
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<Fp8Shared<Variant>*>(memory);
  const int warpgroup = warpgroup_in_block();
  // The kernel that merges splits may be launched beside this one and wait.
  cudaTriggerProgrammaticLaunchCompletion();
  if (threadIdx.x == 0) {
    shared.init();
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  if (warpgroup == 2) {
    cutlass::arch::warpgroup_reg_dealloc<kConfig.gather_registers>();
    GatherFp8Role<Variant>(params, shared).run();
  } else {
    cutlass::arch::warpgroup_reg_alloc<kConfig.attend_registers>();
    AttendFp8Role<Variant>(params, shared, warpgroup).run();
  }
}

template <typename Variant>
void launch_sparse_fp8(const SparseParams& params, int blocks, cudaStream_t stream) {
  launch(sparse_fp8_kernel<Variant>,
         {.grid = dim3(static_cast<unsigned>(blocks)),
          .block = dim3(Fp8Config::kThreads),
          .shared_bytes = sizeof(Fp8Shared<Variant>)},
         stream, params);
}

}  // namespace quire::cuda::sm90::sparse_mla
