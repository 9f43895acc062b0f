// SPDX-License-Identifier: Apache-2.0
// Which tokens and columns a block computes next: the same walk for every role.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/config.h"
#include "cuda/hopper/fused_qkv_matmul/half_tiles.h"
#include "cuda/hopper/fused_qkv_matmul/params.h"
#include "cuda/hopper/tile/block.cuh"
#include "cuda/hopper/tile/tile_walk.h"

namespace quire::cuda::hopper {

struct TilePosition {
  int token;   // first of the tile
  int column;  // first of the tile
  bool is_half = false;
};

template <TileConfig kConfig> struct TilePositions {
  const TileGrid& grid;  // stays in constant memory
  const int& half_columns;
  int index = cluster_index<kConfig.cluster>();
  int halves = 0;  // of tiles, that this cluster has had

  __device__ explicit TilePositions(const TileParams& params)
      : grid(params.grid), half_columns(params.half_columns) {}

  __device__ bool next(TilePosition& position) {
    if constexpr (kConfig.has_halves()) {
      return next_whole(position) || next_half(position);
    } else {
      return next_whole(position);
    }
  }

  __device__ bool next_whole(TilePosition& position) {
    if (index >= grid.rows * grid.columns) return false;
    const TileAt tile = tile_at(grid, index);
    index += num_clusters<kConfig.cluster>();
    const int rank = rank_in_cluster<kConfig.cluster>();
    const int row = tile.row * kConfig.weight_sharers() + rank % kConfig.weight_sharers();
    const int column = tile.column * kConfig.token_sharers() + rank % kConfig.token_sharers();
    position = {.token = row * kConfig.tokens(), .column = column * kConfig.tile_n};
    return true;
  }

  // After the last whole one.
  __device__ bool next_half(TilePosition& position) {
    const int half = half_tile(grid.rows * grid.columns, num_clusters<kConfig.cluster>(),
                               cluster_index<kConfig.cluster>(), halves);
    if (half >= grid.rows * half_columns) return false;
    ++halves;
    const TileAt tile = tile_at({grid.rows, half_columns, grid.band}, half);
    const int row = tile.row * kConfig.weight_sharers() + rank_in_cluster<kConfig.cluster>();
    position = {.token = row * kConfig.tokens(),
                .column = grid.columns * kConfig.tile_n + tile.column * (kConfig.tile_n / 2),
                .is_half = true};
    return true;
  }
};

}  // namespace quire::cuda::hopper
