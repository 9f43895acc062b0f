// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/prefill_attention/prefill_shape.cuh"
#include "cuda/sm90/flash_attention/prefill/kernel.cuh"
#include "cuda/sm90/flash_attention/prefill/launch_prefill.h"

namespace quire::cuda::sm90::flash_attention {

template <typename Variant>
void launch_prefill(const PrefillParams& params, const PagedKeys& keys,
                    const PrefillLaunch& where) {
  launch(prefill_kernel<Variant>, prefill_shape<Variant::kConfig>(where), where.stream, params,
         keys);
}

}  // namespace quire::cuda::sm90::flash_attention
