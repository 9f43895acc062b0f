// SPDX-License-Identifier: Apache-2.0
// The prefill kernel over a chunk's up-projected keys, with products of e4m3.
#pragma once

#include "cuda/hopper/flash_attention/prefill/narrow/run_narrow.cuh"
#include "cuda/hopper/flash_attention/prefill/prefill_shape.cuh"
#include "cuda/hopper/mla_prefill/narrow/launch_narrow.h"
#include "cuda/hopper/mla_prefill/narrow/narrow_source.cuh"

namespace quire::cuda::hopper {

template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    narrow_attention_kernel(const __grid_constant__ PrefillParams params,
                            const __grid_constant__ ProjectedKeys keys) {
  constexpr PrefillConfig kConfig = Variant::kConfig;
  run_narrow<kConfig, NarrowSource<kConfig>>(params, keys);
}

template <typename Variant>
void launch_narrow_attention(const PrefillParams& params, const ProjectedKeys& keys,
                             const PrefillLaunch& where) {
  LaunchShape shape = prefill_shape<Variant::kConfig>(where);
  shape.overlaps_previous = true;
  launch(narrow_attention_kernel<Variant>, shape, where.stream, params, keys);
}

}  // namespace quire::cuda::hopper
