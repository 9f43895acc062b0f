// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/prefill_attention/prefill_shape.cuh"
#include "cuda/sm90/flash_attention/prefill/expanded/expanding_kernel.cuh"
#include "cuda/sm90/flash_attention/prefill/expanded/launch_expanding.h"

namespace quire::cuda::sm90::flash_attention {

template <typename Variant>
void launch_expanding(const PrefillParams& params, const ExpandedKeys& keys,
                      const PrefillLaunch& where) {
  launch(expanding_kernel<Variant>, prefill_shape<Variant::kConfig>(where), where.stream, params,
         keys);
}

}  // namespace quire::cuda::sm90::flash_attention
