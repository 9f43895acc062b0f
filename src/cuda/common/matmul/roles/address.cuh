// SPDX-License-Identifier: Apache-2.0
// What the stores of a tile need, one tile ahead of them: where each token's K row stands in the
// pages, the bias, the scales of finished sums.
#pragma once

#include "cuda/common/matmul/shared.cuh"
#include "cuda/common/matmul/tile_position.cuh"
#include "cuda/common/mma/row_order.h"
#include "cuda/common/rows/load_float.cuh"

namespace quire::cuda {

template <TileConfig kConfig>
__device__ void leave_places(const TileParams& params, TileShared<kConfig>& shared, int turn,
                             const TilePosition& tile, const TileRoute& route, int row,
                             std::int64_t offset) {
  const QkvOutputs& outputs = params.outputs;
  const int token = tile.token + row;
  const int border = tile.column + kGroupRows * route.second_group;
  if (route.groups == 0) {
    shared.places[turn].offsets[0][row] = offset;
  } else if (!owns_token<kConfig>(params, tile, token)) {
    shared.places[turn].rows[0][row] = shared.places[turn].rows[1][row] = nullptr;
  } else {
    const int bytes = number_bytes<kConfig.dtype>(route.dtype);
    std::byte* second = dense_row(outputs, token, border, bytes, offset);
    shared.places[turn].rows[0][row] = dense_row(outputs, token, tile.column, bytes, offset);
    shared.places[turn].rows[1][row] =
        second == nullptr ? second : second - bytes * (border - tile.column);
  }
  if constexpr (kConfig.has_scales()) {
    shared.scales.tokens[turn][row] = token_scale(params.scales, token, outputs.tokens);
  }
}

template <TileConfig kConfig>
__device__ void look_up_tokens(const TileParams& params, TileShared<kConfig>& shared, int turn,
                               const TilePosition& tile, int thread) {
  const QkvOutputs& outputs = params.outputs;
  const TileRoute route = tile_route<kConfig.dtype>(outputs, tile.column,
                                                    tile.is_tail ? kConfig.tail_n : kConfig.tile_n);
  if (thread == 0) {
    TileRoute& left = shared.routes[turn] = route;
    left.token = tile.token;
    left.first_token = tile.first_token;
    left.end_token = min(tile.first_token + tile_tokens<kConfig>(params), outputs.tokens);
  }
  // Side by side where there are registers for it.
  constexpr int kThreads = kConfig.address_threads();
  constexpr int kRows =
      kConfig.moves_registers() ? 1 : (kConfig.tokens() + kThreads - 1) / kThreads;
  for (int first = thread; first < kConfig.tokens(); first += kRows * kThreads) {
    std::int64_t offsets[kRows];
    look_up_offsets(outputs, tile.token + first, kThreads, offsets);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first + i * kThreads;
      if (row >= kConfig.tokens()) break;
      leave_places(params, shared, turn, tile, route, row, offsets[i]);
    }
  }
}

// Of codes.
template <TileConfig kConfig>
__device__ void look_up_scales(const TileParams& params, TileShared<kConfig>& shared, int turn,
                               const TilePosition& tile, int thread) {
  if (params.codes.scales_are_in_row || tile.column + kConfig.tile_n <= params.outputs.q_dim)
    return;
#pragma unroll 1
  for (int row = thread; row < kConfig.tokens(); row += kConfig.address_threads()) {
    shared.places[turn].offsets[1][row] = scale_offset(params.outputs, tile.token + row);
  }
}

template <TileConfig kConfig>
__device__ void look_up_columns(const TileParams& params, TileShared<kConfig>& shared, int turn,
                                const TilePosition& tile, int thread) {
  const QkvOutputs& outputs = params.outputs;
  constexpr int kUnroll = kConfig.moves_registers() ? 1 : 4;  // as registers allow
#pragma unroll kUnroll
  for (int within = thread; within < kConfig.tile_n; within += kConfig.address_threads()) {
    const int column = tile.column + within;
    const bool has_bias = outputs.bias != nullptr && column < outputs.columns;
    shared.bias[turn][within] =
        has_bias ? load_float(outputs.bias, outputs.bias_dtype, column) : 0.0f;
    if constexpr (kConfig.has_scales()) {
      shared.scales.columns[turn][within] = column_scale(params.scales, column, outputs.columns);
    }
  }
}

// `thread` of address_threads().
template <TileConfig kConfig>
__device__ void address_role(const TileParams& params, TileShared<kConfig>& shared, int thread) {
  cudaGridDependencySynchronize();
  RingPosition<kConfig.turns()> at;
  TilePositions<kConfig> positions(params);
  for (TilePosition tile; positions.next(tile); at.advance()) {
    shared.kv_ring.wait_empty(at);
    look_up_tokens(params, shared, at.stage, tile, thread);
    if constexpr (kConfig.kv_rows == KvRows::codes) {
      look_up_scales(params, shared, at.stage, tile, thread);
    }
    look_up_columns(params, shared, at.stage, tile, thread);
    shared.kv_ring.full[at.stage].arrive();
  }
}

}  // namespace quire::cuda
