// SPDX-License-Identifier: Apache-2.0
// Which tokens and columns a block computes next: the same walk for every role.
#pragma once

#include "cuda/common/matmul/config.h"
#include "cuda/common/matmul/params.h"
#include "cuda/common/pipeline/tile_walk.h"
#include "cuda/common/thread/thread.cuh"

namespace quire::cuda {

struct TilePosition {
  int token;        // first that is loaded
  int column;       // first of the tile
  int first_token;  // first that is stored: those before it belong to the tile above
  bool is_tail = false;
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
  const TileParams& params;                      // stays in constant memory
  int index = cluster_index<kConfig.cluster>();  // of the next whole tile
  int tails = 0;                                 // tiles, that this cluster has had

  __device__ explicit TilePositions(const TileParams& params) : params(params) {}

  // Of tiles of kColumns columns; the whole ones come first.
  template <int kColumns> __device__ bool next_of(TilePosition& position) {
    if constexpr (kColumns == kConfig.tile_n) {
      return next_whole(position);
    } else {
      return next_tail(position);
    }
  }

  __device__ bool next(TilePosition& position) {
    if constexpr (kConfig.has_tail()) {
      return next_whole(position) || next_tail(position);
    } else {
      return next_whole(position);
    }
  }

  __device__ bool next_whole(TilePosition& position) {
    if (index >= whole_tiles()) return false;
    const TileAt tile = whole_at(index);
    index += num_clusters<kConfig.cluster>();
    const int rank = rank_in_cluster<kConfig.cluster>();
    const int row = tile.row * kConfig.weight_sharers() + rank % kConfig.weight_sharers();
    const int column = tile.column * kConfig.token_sharers() + rank % kConfig.token_sharers();
    position = place(row, column * kConfig.tile_n);
    return true;
  }

  __device__ int whole_tiles() const {
    const TileGrid& grid = params.grid;
    if constexpr (!kConfig.has_tail()) return grid.rows * grid.columns;
    const TailTiles& tail = params.tail;
    return grid.rows * grid.columns + (grid.rows - tail.rows) * tail.whole_columns;
  }

  // The grid, then what is whole to its right.
  __device__ TileAt whole_at(int whole) const {
    const TileGrid& grid = params.grid;
    const int right = whole - grid.rows * grid.columns;
    if (!kConfig.has_tail() || right < 0) return tile_at(grid, whole);
    const TailTiles& tail = params.tail;
    const TileAt tile = tile_at({grid.rows - tail.rows, tail.whole_columns, grid.band}, right);
    return {.row = tile.row, .column = grid.columns + tile.column};
  }

  // After the last whole one.
  __device__ bool next_tail(TilePosition& position) {
    const TileGrid& grid = params.grid;
    const TailTiles& tail = params.tail;
    const int next = tail_tile(whole_tiles(), num_clusters<kConfig.cluster>(),
                               cluster_index<kConfig.cluster>(), tails, kConfig.tail_share());
    if (next >= tail.rows * tail.columns) return false;
    ++tails;
    const TileAt tile = tile_at({tail.rows, tail.columns, grid.band}, next);
    const int row = (grid.rows - tail.rows + tile.row) * kConfig.weight_sharers() +
                    rank_in_cluster<kConfig.cluster>();
    position = place(row, grid.columns * kConfig.tile_n + tile.column * kConfig.tail_n);
    position.is_tail = true;
    return true;
  }

  // Rows past the end take TMA three times as long as rows that are there (it fills them with
  // zeros), so a tile that would reach over the last token is moved up. Its first tokens are the tile's above,
  // which may have added them up in another order.
  __device__ TilePosition place(int row, int column) const {
    const int tokens = tile_tokens<kConfig>(params);
    return {.token = max(0, min(row * tokens, params.outputs.tokens - tokens)),
            .column = column,
            .first_token = row * tokens};
  }
};

}  // namespace quire::cuda
