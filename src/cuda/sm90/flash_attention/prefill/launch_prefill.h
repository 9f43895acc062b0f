// SPDX-License-Identifier: Apache-2.0
// The border between host code and one compiled kernel: variants/*.cu instantiate it.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/common/prefill_attention/params.h"
#include "cuda/common/prefill_attention/prefill_launch.h"

namespace quire::cuda::sm90::flash_attention {

template <typename Variant>
void launch_prefill(const PrefillParams& params, const PagedKeys& keys,
                    const PrefillLaunch& launch);

}  // namespace quire::cuda::sm90::flash_attention
