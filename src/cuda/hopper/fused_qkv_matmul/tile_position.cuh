// SPDX-License-Identifier: Apache-2.0
// Which tokens and columns a block computes next: the same walk for every role.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/config.h"
#include "cuda/hopper/fused_qkv_matmul/params.h"
#include "cuda/hopper/tile/block.cuh"
#include "cuda/hopper/tile/tile_walk.h"

namespace quire::cuda::hopper {

struct TilePosition {
  int token;   // first of the tile
  int column;  // first of the tile
};

template <TileConfig kConfig> struct TilePositions {
  const TileGrid& grid;  // stays in constant memory
  int index = cluster_index<kConfig.cluster>();

  __device__ explicit TilePositions(const TileParams& params) : grid(params.grid) {}

  __device__ bool next(TilePosition& position) {
    if (index >= grid.rows * grid.columns) return false;
    const TileAt tile = tile_at(grid, index);
    index += num_clusters<kConfig.cluster>();
    const int rank = rank_in_cluster<kConfig.cluster>();
    const int row = tile.row * kConfig.weight_sharers() + rank % kConfig.weight_sharers();
    const int column = tile.column * kConfig.token_sharers() + rank % kConfig.token_sharers();
    position = {.token = row * kConfig.tokens(), .column = column * kConfig.tile_n};
    return true;
  }
};

}  // namespace quire::cuda::hopper
