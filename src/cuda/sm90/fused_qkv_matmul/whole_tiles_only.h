// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/matmul/config.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

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
