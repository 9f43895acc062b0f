// SPDX-License-Identifier: Apache-2.0
// fused_qkv_matmul with packed int4 weights: Yᵀ = W · Xᵀ, the weights from registers.
//
//   warpgroups 0 –  multiply  codes, decoded to registers, times x; then all store
//   the last one    load      x, codes, scales and zeros into the ring; each token's row in the pages
#pragma once

#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/fused_qkv_matmul/int4/config.h"
#include "cuda/sm90/fused_qkv_matmul/int4/roles/load.cuh"
#include "cuda/sm90/fused_qkv_matmul/int4/roles/multiply.cuh"
#include "cuda/sm90/fused_qkv_matmul/int4/store_tokens.cuh"

namespace quire::cuda::sm90::fused_qkv_matmul {

template <Int4Config kConfig>
__device__ void multiply_and_store(const Int4Params& params, Int4Shared<kConfig>& shared,
                                   int warpgroup, int first_panel, int first_token) {
  Int4Sums<kConfig> sums;
  multiply_role(params.order, shared, warpgroup / kConfig.k_groups, warpgroup % kConfig.k_groups,
                sums);
  __syncthreads();  // the last chunk has been read
  leave_sums(sums, shared.sums[warpgroup]);
  __syncthreads();
  store_tokens(params.outputs, shared, first_panel * kPanelRows, first_token);
}

template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), Variant::kConfig.blocks_per_sm)
    int4_kernel(const __grid_constant__ Int4Params params) {
  constexpr Int4Config kConfig = Variant::kConfig;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<Int4Shared<kConfig>*>(memory);
  const int first_panel = static_cast<int>(blockIdx.x) * kConfig.row_groups;
  const int first_token = static_cast<int>(blockIdx.y) * kConfig.tokens;
  const int warpgroup = warpgroup_in_block();
  if (threadIdx.x == 0) {
    shared.ring.init(1, kConfig.readers());
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  if (warpgroup == kConfig.warpgroups()) {
    if constexpr (kConfig.moves_registers()) {
      cutlass::arch::warpgroup_reg_dealloc<Int4Config::kLoadRegisters>();
    }
    load_role(params, shared, first_panel, first_token);
    __syncthreads();
    __syncthreads();
  } else {
    if constexpr (kConfig.moves_registers()) {
      cutlass::arch::warpgroup_reg_alloc<Int4Config::kMultiplyRegisters>();
    }
    multiply_and_store(params, shared, warpgroup, first_panel, first_token);
  }
}

template <typename Variant>
void launch_int4(const Int4Params& params, const Int4Grid& grid, cudaStream_t stream) {
  constexpr Int4Config kConfig = Variant::kConfig;
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(grid.columns), static_cast<unsigned>(grid.tokens)),
      .block = dim3(kConfig.threads()),
      .shared_bytes = sizeof(Int4Shared<kConfig>),
      .overlaps_previous = params.overlaps_previous};
  launch(int4_kernel<Variant>, shape, stream, params);
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
