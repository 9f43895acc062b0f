// SPDX-License-Identifier: Apache-2.0
// fused_qkv_matmul by tiles: persistent, warp-specialised, Y stored from registers into Q and the
// pages.
//
//   warp 0            load      x and weight tiles into the ring
//   warps 1 – 3       address   each token's row in the pages, bias, scales of finished sums
//   warps 2 – 3       scale     fp8 block scales: those of every 128 of K, instead
//   warpgroups 1 –    multiply  64 tokens × tile_n columns each, then store
#pragma once

#include "cuda/common/matmul/roles/address.cuh"
#include "cuda/common/matmul/roles/load.cuh"
#include "cuda/common/matmul/roles/multiply.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda {

template <TileConfig kConfig>
__device__ void produce(const TileParams& params, TileShared<kConfig>& shared) {
  if constexpr (kConfig.moves_registers()) {
    cutlass::arch::warpgroup_reg_dealloc<TileConfig::kProducerRegisters>();
  }
  const int thread = static_cast<int>(threadIdx.x) - 32;
  if (warp_in_block() == 0) {
    if (cute::elect_one_sync()) load_role(params, shared);
  } else if (thread < kConfig.address_threads()) {
    address_role(params, shared, thread);
  } else if constexpr (kConfig.scale_warps() > 0) {
    scale_role(params, shared, thread - kConfig.address_threads());
  }
}

// All of a block's work, for the kernels that are made of it.
template <TileConfig kConfig> __device__ inline void run_tiles(const TileParams& params) {
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
    if constexpr (kConfig.moves_registers()) {
      cutlass::arch::warpgroup_reg_alloc<TileConfig::kConsumerRegisters>();
    }
    multiply_role(params, shared, warpgroup_in_block() - 1);
  }
}

// Variant: a named type with a kConfig. (The compiler's host stubs cannot spell a struct value as a
// kernel's template argument.)
template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), Variant::kConfig.blocks_per_sm)
    tile_kernel(const __grid_constant__ TileParams params) {
  run_tiles<Variant::kConfig>(params);
}

template <typename Variant> void launch_tile(const TileParams& params, const TileLaunch& where) {
  constexpr TileConfig kConfig = Variant::kConfig;
  // 228 KB of a multiprocessor, of which every CTA takes 1 for itself.
  static_assert(kConfig.blocks_per_sm * (sizeof(TileShared<kConfig>) + 1024) <= 228 * 1024);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(where.blocks)),
                          .block = dim3(kConfig.threads()),
                          .cluster = static_cast<unsigned>(kConfig.cluster),
                          .shared_bytes = sizeof(TileShared<kConfig>),
                          .overlaps_previous = params.early_blocks > 0};
  launch(tile_kernel<Variant>, shape, where.stream, params);
}

}  // namespace quire::cuda
