// SPDX-License-Identifier: Apache-2.0
// The border between host code and one compiled kernel: variants/*.cu instantiate it.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/common/matmul/params.h"
#include "cuda/common/matmul/tile_launch.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

template <typename Variant> void launch_tile(const TileParams& params, const TileLaunch& launch);

}  // namespace quire::cuda::sm90::fused_qkv_matmul
