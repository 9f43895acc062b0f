// SPDX-License-Identifier: Apache-2.0
// The tile kernel of fused_qkv_matmul, for chunks that may turn out to be unused.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/kernel.cuh"
#include "cuda/hopper/mla_prefill/projection_variants.h"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {

template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), Variant::kConfig.blocks_per_sm)
    projection_kernel(const __grid_constant__ TileParams params, const std::int32_t* live_rows) {
  constexpr TileConfig kConfig = Variant::kConfig;
  if (*live_rows <= 0) return;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<TileShared<kConfig>*>(memory);
  if (threadIdx.x == 0) {
    prefetch(params.x);
    prefetch(params.weight);
    shared.init();
    cutlass::arch::fence_barrier_init();
  }
  sync_cluster<kConfig.cluster>();
  if (warpgroup_in_block() == 0) {
    produce<kConfig>(params, shared);
  } else {
    cutlass::arch::warpgroup_reg_alloc<TileConfig::kConsumerRegisters>();
    multiply_role(params, shared, warpgroup_in_block() - 1);
  }
}

template <typename Variant>
void launch_projection(const TileParams& params, const std::int32_t* live_rows,
                       const TileLaunch& where) {
  constexpr TileConfig kConfig = Variant::kConfig;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(where.blocks)),
                          .block = dim3(kConfig.threads()),
                          .cluster = static_cast<unsigned>(kConfig.cluster),
                          .shared_bytes = sizeof(TileShared<kConfig>)};
  launch(projection_kernel<Variant>, shape, where.stream, params, live_rows);
}

}  // namespace quire::cuda::hopper
