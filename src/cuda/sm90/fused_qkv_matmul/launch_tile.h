// SPDX-License-Identifier: Apache-2.0
// The border between host code and one compiled kernel: src/cuda/variants.cmake instantiates it.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/common/matmul/config.h"
#include "cuda/common/matmul/params.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

template <typename Variant> void launch_tile(const TileParams& params, const TileLaunch& launch);

constexpr TileConfig without_tail(TileConfig config) {
  config.tail_n = 0;
  return config;
}

// A variant without its narrow tiles, for launches that need none: code for two widths made 2048 tokens of fp8 1 %
// slower.
template <typename Variant> struct WholeTilesOnly {
  static constexpr TileConfig kConfig = without_tail(Variant::kConfig);
};

}  // namespace quire::cuda::sm90::fused_qkv_matmul
