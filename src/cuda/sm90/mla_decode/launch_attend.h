// SPDX-License-Identifier: Apache-2.0
// The border between host code and one compiled kernel: variants/*.cu instantiate it.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/sm90/mla_decode/params.h"

namespace quire::cuda::sm90::mla_decode {

template <typename Variant>
void launch_mla_attend(const MlaDecodeParams& params, cudaStream_t stream);

}  // namespace quire::cuda::sm90::mla_decode
