// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/hopper/flash_attention/prefill/expanded/expanding_kernel.cuh"
#include "cuda/hopper/flash_attention/prefill/expanded/launch_expanding.h"
#include "cuda/hopper/flash_attention/prefill/prefill_shape.cuh"

namespace quire::cuda::hopper {

template <typename Variant>
void launch_expanding(const PrefillParams& params, const ExpandedKeys& keys,
                      const PrefillLaunch& where) {
  launch(expanding_kernel<Variant>, prefill_shape<Variant::kConfig>(where), where.stream, params,
         keys);
}

}  // namespace quire::cuda::hopper
