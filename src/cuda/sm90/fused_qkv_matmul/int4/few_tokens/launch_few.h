// SPDX-License-Identifier: Apache-2.0
// The border between host code and one compiled kernel: variants/*.cu instantiate it.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/sm90/fused_qkv_matmul/int4/few_tokens/config.h"
#include "cuda/sm90/fused_qkv_matmul/int4/few_tokens/params.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

struct FewTokensLaunch {
  int blocks = 0;
  int warps = 0;  // that multiply
  cudaStream_t stream = nullptr;
};

template <typename Variant>
void launch_few_tokens(const FewTokensParams& params, const FewTokensLaunch& launch);

}  // namespace quire::cuda::sm90::fused_qkv_matmul
