// SPDX-License-Identifier: Apache-2.0
// The border between host code and one compiled kernel: variants/*.cu instantiate it.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/sm90/flash_attention/decode/params.h"

namespace quire::cuda::sm90::flash_attention {

template <typename Variant> void launch_decode(const DecodeParams& params, cudaStream_t stream);

}  // namespace quire::cuda::sm90::flash_attention
