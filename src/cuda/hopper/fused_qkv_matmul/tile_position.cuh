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
  int token;        // first that is loaded
  int column;       // first of the tile
  int first_token;  // first that is stored: those before it belong to the tile above
  bool is_half = false;
};

// Tokens of a tile: as many as its copies bring.
template <TileConfig kConfig> __device__ int tile_tokens(const TileParams& params) {
  return params.box_tokens * kConfig.token_sharers();
}

// Whether the tile stores the token.
template <TileConfig kConfig>
__device__ bool owns_token(const TileParams& params, const TilePosition& tile, int token) {
  return token >= tile.first_token && token < tile.first_token + tile_tokens<kConfig>(params) &&
         token < params.outputs.tokens;
}

template <TileConfig kConfig> struct TilePositions {
  const TileParams& params;  // stays in constant memory
  int index = cluster_index<kConfig.cluster>();
  int halves = 0;  // of tiles, that this cluster has had

  __device__ explicit TilePositions(const TileParams& params) : params(params) {}

  __device__ bool next(TilePosition& position) {
    if constexpr (kConfig.has_halves()) {
      return next_whole(position) || next_half(position);
    } else {
      return next_whole(position);
    }
  }

  __device__ bool next_whole(TilePosition& position) {
    const TileGrid& grid = params.grid;
    if (index >= grid.rows * grid.columns) return false;
    const TileAt tile = tile_at(grid, index);
    index += num_clusters<kConfig.cluster>();
    const int rank = rank_in_cluster<kConfig.cluster>();
    const int row = tile.row * kConfig.weight_sharers() + rank % kConfig.weight_sharers();
    const int column = tile.column * kConfig.token_sharers() + rank % kConfig.token_sharers();
    position = place(row, column * kConfig.tile_n);
    return true;
  }

  // After the last whole one.
  __device__ bool next_half(TilePosition& position) {
    const TileGrid& grid = params.grid;
    const int half = half_tile(grid.rows * grid.columns, num_clusters<kConfig.cluster>(),
                               cluster_index<kConfig.cluster>(), halves);
    if (half >= grid.rows * params.half_columns) return false;
    ++halves;
    const TileAt tile = tile_at({grid.rows, params.half_columns, grid.band}, half);
    const int row = tile.row * kConfig.weight_sharers() + rank_in_cluster<kConfig.cluster>();
    position = place(row, grid.columns * kConfig.tile_n + tile.column * (kConfig.tile_n / 2));
    position.is_half = true;
    return true;
  }

  // Rows past the end take the copy engine three times as long as rows that are there (it fills them with
  // zeros), so a tile that would reach over the last token is moved up. Its first tokens are the tile's above,
  // which may have added them up in another order.
  __device__ TilePosition place(int row, int column) const {
    const int tokens = tile_tokens<kConfig>(params);
    return {.token = max(0, min(row * tokens, params.outputs.tokens - tokens)),
            .column = column,
            .first_token = row * tokens};
  }
};

}  // namespace quire::cuda::hopper
