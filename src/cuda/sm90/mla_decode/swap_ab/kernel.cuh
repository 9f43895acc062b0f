// SPDX-License-Identifier: Apache-2.0
// Attention of few query rows of a sequence over latent rows in pages.
// Roles and their barriers: shared.cuh.
#pragma once

#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/swap_ab/load_units.cuh"
#include "cuda/sm90/mla_decode/swap_ab/shared.cuh"
#include "cuda/sm90/mla_decode/swap_ab/sum_values.cuh"
#include "cuda/sm90/mla_decode/swap_ab/weigh_keys.cuh"
#include "cuda/sm90/mla_decode/variants.h"

namespace quire::cuda::sm90::mla_decode {

// Variant: a named type with a kConfig.
template <typename Variant>
__global__ void __launch_bounds__(SwapAbConfig::kThreads, 1)
    mla_decode_swap_ab_kernel(const __grid_constant__ MlaDecodeParams params) {
  constexpr SwapAbConfig kConfig = Variant::kConfig;
  constexpr int kStartRegisters = 96;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<SwapAbShared<kConfig>*>(memory);
  // The kernel that merges splits may take its place beside this one and wait there.
  cudaTriggerProgrammaticLaunchCompletion();
  const int warpgroup = warpgroup_in_block();
  if (warpgroup == 2 * SwapAbConfig::kGroups) {
    const auto thread = static_cast<int>(threadIdx.x % 128);
    if (thread == 0) prefetch(params.latents);
    prefetch_table(params.pages.kv.pages, params.batch.size, thread);
    const ClusterPart part =
        find_part(params, shared.work_scan, static_cast<int>(blockIdx.x), thread);
    await_barriers();
    cutlass::arch::warpgroup_reg_dealloc<kConfig.load_registers>();
    LoadUnits<kConfig>(params, shared, warp_in_block() % SwapAbConfig::kGroupWarps).run(part);
    return;
  }
  make_barriers(shared, params.format.token_scales != nullptr);
  if (warpgroup < SwapAbConfig::kGroups) {
    cutlass::arch::warpgroup_reg_alloc<kConfig.score_registers>();
    WeighKeys<kConfig>(params, shared, warpgroup).run();
  } else {
    if constexpr (kConfig.value_registers > kStartRegisters) {
      cutlass::arch::warpgroup_reg_alloc<kConfig.value_registers>();
    } else {
      cutlass::arch::warpgroup_reg_dealloc<kConfig.value_registers>();
    }
    SumValues<kConfig>(params, shared, warpgroup - SwapAbConfig::kGroups).run();
  }
}

template <typename Variant>
void launch_swap_ab(const MlaDecodeParams& params, cudaStream_t stream) {
  using Shared = SwapAbShared<Variant::kConfig>;
  static_assert(sizeof(Shared) <= 227 * 1024);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(params.schedule.blocks)),
                          .block = dim3(SwapAbConfig::kThreads),
                          .shared_bytes = sizeof(Shared)};
  launch(mla_decode_swap_ab_kernel<Variant>, shape, stream, params);
}

}  // namespace quire::cuda::sm90::mla_decode
