// SPDX-License-Identifier: Apache-2.0
// The prefill kernel with products of e4m3 over a chunk's up-projected keys.
#pragma once

#include "cuda/common/prefill_attention/narrow/flipping_kernel.cuh"
#include "cuda/sm90/mla_prefill/narrow/launch_narrow.h"
#include "cuda/sm90/mla_prefill/narrow/narrow_source.cuh"

namespace quire::cuda::sm90::mla_prefill {

template <typename Variant>
void launch_narrow_attention(const PrefillParams& params, const ProjectedKeys& keys,
                             const PrefillLaunch& where) {
  LaunchShape shape = prefill_shape<Variant::kConfig>(where);
  shape.overlaps_previous = true;
  launch(flipping_kernel<Variant, NarrowSource<Variant::kConfig>>, shape, where.stream, params,
         keys);
}

}  // namespace quire::cuda::sm90::mla_prefill
