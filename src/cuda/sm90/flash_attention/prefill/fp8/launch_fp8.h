// SPDX-License-Identifier: Apache-2.0
// The border between host code and one compiled kernel: variants/*.cu instantiate it.
#pragma once

#include "cuda/sm90/flash_attention/prefill/fp8/transposed_keys.h"
#include "cuda/sm90/flash_attention/prefill/launch_prefill.h"

namespace quire::cuda::sm90::flash_attention {

template <typename Variant>
void launch_fp8(const PrefillParams& params, const TransposedKeys& keys,
                const PrefillLaunch& launch);

}  // namespace quire::cuda::sm90::flash_attention
