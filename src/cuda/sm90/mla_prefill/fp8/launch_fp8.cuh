// SPDX-License-Identifier: Apache-2.0
// The prefill kernel with products of e4m3 over a chunk's up-projected keys.
#pragma once

#include "cuda/common/prefill_attention/fp8/transposing_kernel.cuh"
#include "cuda/sm90/mla_prefill/fp8/fp8_source.cuh"
#include "cuda/sm90/mla_prefill/fp8/launch_fp8.h"

namespace quire::cuda::sm90::mla_prefill {

template <typename Variant>
void launch_fp8_attention(const PrefillParams& params, const ProjectedKeys& keys,
                          const PrefillLaunch& where) {
  LaunchShape shape = prefill_shape<Variant::kConfig>(where);
  shape.overlaps_previous = true;
  launch(transposing_kernel<Variant, Fp8Source<Variant::kConfig>>, shape, where.stream, params,
         keys);
}

}  // namespace quire::cuda::sm90::mla_prefill
