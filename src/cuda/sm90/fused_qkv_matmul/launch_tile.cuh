// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/matmul/kernel.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/fused_qkv_matmul/launch_tile.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

template <typename Variant> void launch_tile(const TileParams& params, const TileLaunch& where) {
  constexpr TileConfig kConfig = Variant::kConfig;
  // 228 KB of a multiprocessor, of which every block takes 1 for itself.
  static_assert(kConfig.blocks_per_sm * (sizeof(TileShared<kConfig>) + 1024) <= 228 * 1024);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(where.blocks)),
                          .block = dim3(kConfig.threads()),
                          .cluster = static_cast<unsigned>(kConfig.cluster),
                          .shared_bytes = sizeof(TileShared<kConfig>),
                          .overlaps_previous = params.early_blocks > 0};
  launch(tile_kernel<Variant>, shape, where.stream, params);
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
