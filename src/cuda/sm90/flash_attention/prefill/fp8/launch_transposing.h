// SPDX-License-Identifier: Apache-2.0
// The border between host code and one compiled kernel: variants/*.cu instantiate it.
#pragma once

#include "cuda/sm90/flash_attention/prefill/launch_prefill.h"

namespace quire::cuda::sm90::flash_attention {

template <typename Variant>
void launch_transposing(const PrefillParams& params, const PagedKeys& keys,
                        const PrefillLaunch& launch);

}  // namespace quire::cuda::sm90::flash_attention
