// SPDX-License-Identifier: Apache-2.0
// The prefill kernel with products of e4m3 that transposes V itself.
#pragma once

#include "cuda/hopper/flash_attention/prefill/narrow/launch_flipping.h"
#include "cuda/hopper/flash_attention/prefill/narrow/run_narrow.cuh"
#include "cuda/hopper/flash_attention/prefill/paged_source.cuh"
#include "cuda/hopper/flash_attention/prefill/prefill_shape.cuh"

namespace quire::cuda::hopper {

template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    flipping_kernel(const __grid_constant__ PrefillParams params,
                    const __grid_constant__ PagedKeys keys) {
  constexpr PrefillConfig kConfig = Variant::kConfig;
  run_narrow<kConfig, PagedSource<kConfig>>(params, keys);
}

template <typename Variant>
void launch_flipping(const PrefillParams& params, const PagedKeys& keys,
                     const PrefillLaunch& where) {
  launch(flipping_kernel<Variant>, prefill_shape<Variant::kConfig>(where), where.stream, params,
         keys);
}

}  // namespace quire::cuda::hopper
