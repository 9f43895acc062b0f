// SPDX-License-Identifier: Apache-2.0
// The border between host code and one compiled kernel: variants/*.cu instantiate it.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/sm90/fused_qkv_matmul/int4/params.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

struct Int4Grid {
  int columns = 0;  // blocks along the columns of Y
  int tokens = 0;   // and along the tokens
};

template <typename Variant>
void launch_int4(const Int4Params& params, const Int4Grid& grid, cudaStream_t stream);

}  // namespace quire::cuda::sm90::fused_qkv_matmul
