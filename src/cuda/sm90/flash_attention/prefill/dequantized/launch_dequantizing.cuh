// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/prefill_attention/prefill_shape.cuh"
#include "cuda/sm90/flash_attention/prefill/dequantized/dequantizing_kernel.cuh"
#include "cuda/sm90/flash_attention/prefill/dequantized/launch_dequantizing.h"

namespace quire::cuda::sm90::flash_attention {

template <typename Variant>
void launch_dequantizing(const PrefillParams& params, const DequantizedKeys& keys,
                         const PrefillLaunch& where) {
  launch(dequantizing_kernel<Variant>, prefill_shape<Variant::kConfig>(where), where.stream, params,
         keys);
}

}  // namespace quire::cuda::sm90::flash_attention
