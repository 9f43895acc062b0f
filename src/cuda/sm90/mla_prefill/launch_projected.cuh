// SPDX-License-Identifier: Apache-2.0
// The prefill kernel over a chunk's up-projected keys.
#pragma once

#include "cuda/common/prefill_attention/prefill_shape.cuh"
#include "cuda/common/prefill_attention/run_roles.cuh"
#include "cuda/sm90/mla_prefill/attention_variants.h"
#include "cuda/sm90/mla_prefill/projected_source.cuh"

namespace quire::cuda::sm90::mla_prefill {

template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    projected_kernel(const __grid_constant__ PrefillParams params,
                     const __grid_constant__ ProjectedKeys keys) {
  run_roles<Variant::kConfig, ProjectedSource<Variant::kConfig>>(params, keys);
}

template <typename Variant>
void launch_projected(const PrefillParams& params, const ProjectedKeys& keys,
                      const PrefillLaunch& where) {
  LaunchShape shape = prefill_shape<Variant::kConfig>(where);
  shape.overlaps_previous = true;
  launch(projected_kernel<Variant>, shape, where.stream, params, keys);
}

}  // namespace quire::cuda::sm90::mla_prefill
