// SPDX-License-Identifier: Apache-2.0
// The border between host code and one compiled kernel: variants/*.cu instantiate it.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/hopper/fused_qkv_matmul/params.h"

namespace quire::cuda::hopper {

struct TileLaunch {
  int blocks = 0;  // a multiple of the cluster
  cudaStream_t stream = nullptr;
};

template <typename Variant> void launch_tile(const TileParams& params, const TileLaunch& launch);

}  // namespace quire::cuda::hopper
