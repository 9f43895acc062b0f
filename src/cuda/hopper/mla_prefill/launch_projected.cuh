// SPDX-License-Identifier: Apache-2.0
// The prefill kernel over a chunk's up-projected keys.
#pragma once

#include "cuda/hopper/flash_attention/prefill/run_roles.cuh"
#include "cuda/hopper/mla_prefill/attention_variants.h"
#include "cuda/hopper/mla_prefill/projected_source.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {

template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    projected_kernel(const __grid_constant__ PrefillParams params,
                     const __grid_constant__ ProjectedKeys keys) {
  cudaGridDependencySynchronize();
  run_roles<Variant::kConfig, ProjectedSource<Variant::kConfig>>(params, keys);
}

template <typename Variant>
void launch_projected(const PrefillParams& params, const ProjectedKeys& keys,
                      const PrefillLaunch& where) {
  constexpr PrefillConfig kConfig = Variant::kConfig;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(where.blocks)),
                          .block = dim3(kConfig.threads()),
                          .shared_bytes = sizeof(PrefillShared<kConfig>),
                          .overlaps_previous = true};
  launch(projected_kernel<Variant>, shape, where.stream, params, keys);
}

}  // namespace quire::cuda::hopper
