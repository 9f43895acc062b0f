// SPDX-License-Identifier: Apache-2.0
// The prefill kernel over a chunk's up-projected keys, with products of e4m3.
#pragma once

#include "cuda/hopper/flash_attention/prefill/narrow/attend_narrow.cuh"
#include "cuda/hopper/flash_attention/prefill/run_roles.cuh"
#include "cuda/hopper/mla_prefill/narrow/launch_narrow.h"
#include "cuda/hopper/mla_prefill/narrow/narrow_source.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {

template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    narrow_attention_kernel(const __grid_constant__ PrefillParams params,
                            const __grid_constant__ NarrowKeys keys) {
  constexpr PrefillConfig kConfig = Variant::kConfig;
  cudaGridDependencySynchronize();
  run_roles<kConfig, NarrowSource<kConfig>, NarrowAttend<kConfig>>(params, keys);
}

template <typename Variant>
void launch_narrow_attention(const PrefillParams& params, const NarrowKeys& keys,
                             const PrefillLaunch& where) {
  constexpr PrefillConfig kConfig = Variant::kConfig;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(where.blocks)),
                          .block = dim3(kConfig.threads()),
                          .shared_bytes = sizeof(PrefillShared<kConfig>),
                          .overlaps_previous = true};
  launch(narrow_attention_kernel<Variant>, shape, where.stream, params, keys);
}

}  // namespace quire::cuda::hopper
