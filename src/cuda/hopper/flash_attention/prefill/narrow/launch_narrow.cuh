// SPDX-License-Identifier: Apache-2.0
// The prefill kernel with products of e4m3.
#pragma once

#include "cuda/hopper/flash_attention/prefill/narrow/attend_narrow.cuh"
#include "cuda/hopper/flash_attention/prefill/narrow/flipped_source.cuh"
#include "cuda/hopper/flash_attention/prefill/narrow/launch_narrow.h"
#include "cuda/hopper/flash_attention/prefill/prefill_shape.cuh"
#include "cuda/hopper/flash_attention/prefill/run_roles.cuh"

namespace quire::cuda::hopper {

template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    narrow_kernel(const __grid_constant__ PrefillParams params,
                  const __grid_constant__ FlippedKeys keys) {
  constexpr PrefillConfig kConfig = Variant::kConfig;
  run_roles<kConfig, FlippedSource<kConfig>, NarrowAttend<kConfig, Flip::before>>(params, keys);
}

template <typename Variant>
void launch_narrow(const PrefillParams& params, const FlippedKeys& keys,
                   const PrefillLaunch& where) {
  LaunchShape shape = prefill_shape<Variant::kConfig>(where);
  shape.overlaps_previous = true;  // that one transposes V
  launch(narrow_kernel<Variant>, shape, where.stream, params, keys);
}

}  // namespace quire::cuda::hopper
