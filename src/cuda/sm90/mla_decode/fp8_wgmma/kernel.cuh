// SPDX-License-Identifier: Apache-2.0
// Attention of many query rows of a sequence over latent rows of e4m3 with a scale for 128 columns in the row.
// Roles and their barriers: shared.cuh.
#pragma once

#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/mla_decode/fp8_wgmma/score_tiles.cuh"
#include "cuda/sm90/mla_decode/fp8_wgmma/sum_tiles.cuh"
#include "cuda/sm90/mla_decode/swap_ab/load_units.cuh"
#include "cuda/sm90/mla_decode/variants.h"

namespace quire::cuda::sm90::mla_decode {

// Variant: a named type with a kConfig.
template <typename Variant>
__global__ void __launch_bounds__(Fp8Wgmma::kThreads, 1)
    mla_decode_fp8_wgmma_kernel(const __grid_constant__ MlaDecodeParams params) {
  constexpr SwapAbConfig kConfig = Variant::kConfig;
  using Shared = Fp8WgmmaShared<kConfig>;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  // The kernel that merges splits may take its place beside this one and wait there.
  cudaTriggerProgrammaticLaunchCompletion();
  if (threadIdx.x == 0) {
    prefetch(params.latents);
    shared.init();
    cutlass::arch::fence_barrier_init();
  }
  const auto cluster = static_cast<int>(blockIdx.x / Variant::kCluster);
  const int first_row = static_cast<int>(blockIdx.x % Variant::kCluster) * kConfig.rows;
  const int warpgroup = warpgroup_in_block();
  ClusterPart part;
  if (warpgroup == 3) {  // beside the barriers, which it does not need
    // Opaque: else two registers are kept for it in all roles, and spilled.
    const int thread = opaque(static_cast<int>(threadIdx.x % 128));
    prefetch_table(params.pages.kv.pages, params.batch.size, thread);
    part = find_part(params, shared.work_scan, cluster, thread);
  }
  __syncthreads();
  if (warpgroup == 3) {
    cutlass::arch::warpgroup_reg_dealloc<kConfig.load_registers>();
    LoadUnits<kConfig, Shared, Variant::kCluster>(params, shared, warp_in_block() % 4).run(part);
  } else if (warpgroup == 2) {
    cutlass::arch::warpgroup_reg_alloc<kConfig.score_registers>();
    ScoreTiles<kConfig>(params, shared, first_row).run();
  } else {
    cutlass::arch::warpgroup_reg_alloc<kConfig.value_registers>();
    SumTiles<kConfig>(params, shared, warpgroup, first_row).run();
  }
}

template <typename Variant>
void launch_fp8_wgmma(const MlaDecodeParams& params, cudaStream_t stream) {
  using Shared = Fp8WgmmaShared<Variant::kConfig>;
  static_assert(sizeof(Shared) <= 227 * 1024);
  static_assert(Variant::kRows == Variant::kCluster * Variant::kConfig.rows);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(params.schedule.blocks * Variant::kCluster)),
      .block = dim3(Fp8Wgmma::kThreads),
      .cluster = Variant::kCluster,
      .shared_bytes = sizeof(Shared)};
  launch(mla_decode_fp8_wgmma_kernel<Variant>, shape, stream, params);
}

}  // namespace quire::cuda::sm90::mla_decode
