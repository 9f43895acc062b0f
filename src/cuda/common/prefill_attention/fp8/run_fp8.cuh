// SPDX-License-Identifier: Apache-2.0
// The roles of a prefill kernel with products of e4m3 whose V comes as it is: as run_roles.cuh has
// them, but those who load V transpose it, and consumers are others.
#pragma once

#include "cuda/common/prefill_attention/fp8/attend_fp8.cuh"
#include "cuda/common/prefill_attention/fp8/load_transposed.cuh"
#include "cuda/common/prefill_attention/run_roles.cuh"
#include "cuda/common/prefill_attention/shared.cuh"

namespace quire::cuda {

template <PrefillConfig kConfig, typename Source>
__device__ inline void run_fp8(const PrefillParams& params, const typename Source::Params& source) {
  run_block<kConfig, Source, Fp8Attend<kConfig, Transpose::in_place>>(
      params, source, [&](PrefillShared<kConfig>& shared) {
        const int half = warp_in_block() % 2;
        if (warp_in_block() >= 2) {
          TransposingLoad<kConfig, Source>(source, shared, half).run();
          return;
        }
        PrefillLoad<kConfig, Source> load(params, source, shared, half);
        if (half == 0) {
          load.lead();
        } else {
          load.load_keys();
        }
      });
}

// The prefill kernel with products of e4m3 that transposes V itself, whatever its keys come from.

template <typename Variant, typename Source>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    transposing_kernel(const __grid_constant__ PrefillParams params,
                       const __grid_constant__ typename Source::Params keys) {
  run_fp8<Variant::kConfig, Source>(params, keys);
}

}  // namespace quire::cuda
