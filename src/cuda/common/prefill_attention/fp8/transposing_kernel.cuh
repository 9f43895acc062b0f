// SPDX-License-Identifier: Apache-2.0
// The prefill kernel with products of e4m3 that transposes V itself, whatever its keys come from.
#pragma once

#include "cuda/common/prefill_attention/fp8/run_fp8.cuh"
#include "cuda/common/prefill_attention/prefill_shape.cuh"

namespace quire::cuda {

template <typename Variant, typename Source>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    transposing_kernel(const __grid_constant__ PrefillParams params,
                       const __grid_constant__ typename Source::Params keys) {
  run_fp8<Variant::kConfig, Source>(params, keys);
}

}  // namespace quire::cuda
