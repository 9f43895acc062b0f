// SPDX-License-Identifier: Apache-2.0
// The border between host code and one compiled kernel: variants/*.cu instantiate it.
#pragma once

#include "cuda/sm90/flash_attention/prefill/launch_prefill.h"
#include "cuda/sm90/flash_attention/prefill/narrow/flipped_keys.h"

namespace quire::cuda::sm90::flash_attention {

template <typename Variant>
void launch_narrow(const PrefillParams& params, const FlippedKeys& keys,
                   const PrefillLaunch& launch);

}  // namespace quire::cuda::sm90::flash_attention
