// SPDX-License-Identifier: Apache-2.0
// The prefill kernel with products of e4m3 that transposes V itself, whatever its keys come from, and
// its launch over the pages.
#pragma once

#include "cuda/hopper/flash_attention/prefill/narrow/launch_flipping.h"
#include "cuda/hopper/flash_attention/prefill/narrow/run_narrow.cuh"
#include "cuda/hopper/flash_attention/prefill/paged_source.cuh"
#include "cuda/hopper/flash_attention/prefill/prefill_shape.cuh"

namespace quire::cuda::hopper {

template <typename Variant, typename Source>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    flipping_kernel(const __grid_constant__ PrefillParams params,
                    const __grid_constant__ typename Source::Params keys) {
  run_narrow<Variant::kConfig, Source>(params, keys);
}

template <typename Variant>
void launch_flipping(const PrefillParams& params, const PagedKeys& keys,
                     const PrefillLaunch& where) {
  using Source = PagedSource<Variant::kConfig>;
  launch(flipping_kernel<Variant, Source>, prefill_shape<Variant::kConfig>(where), where.stream,
         params, keys);
}

}  // namespace quire::cuda::hopper
