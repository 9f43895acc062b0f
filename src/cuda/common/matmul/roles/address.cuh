// SPDX-License-Identifier: Apache-2.0
// What the stores of a tile need, one tile ahead of them: where each token's K row stands in the
// pages, the bias, the scales of finished sums.
#pragma once

#include "cuda/common/matmul/shared.cuh"
#include "cuda/common/matmul/tile_position.cuh"
#include "cuda/common/mma/row_order.h"
#include "cuda/common/rows/number.cuh"

namespace quire::cuda {

template <TileConfig kConfig>
__device__ void leave_places(const TileParams& params, TileShared<kConfig>& shared, int kv_stage,
                             const TilePosition& tile, const TileRoute& route, int row,
                             std::int64_t offset) {
  const QkvOutputs& outputs = params.outputs;
  const int token = tile.token + row;
  const int border = tile.column + kGroupRows * route.second_group;
  if (route.groups == 0) {
    shared.places[kv_stage].offsets[0][row] = offset;
  } else if (!owns_token<kConfig>(params, tile, token)) {
    shared.places[kv_stage].rows[0][row] = shared.places[kv_stage].rows[1][row] = nullptr;
  } else {
    const int bytes = number_bytes<kConfig.dtype>(route.dtype);
    std::byte* second = dense_row(outputs, token, border, bytes, offset);
    shared.places[kv_stage].rows[0][row] = dense_row(outputs, token, tile.column, bytes, offset);
    shared.places[kv_stage].rows[1][row] =
        second == nullptr ? second : second - bytes * (border - tile.column);
  }
  if constexpr (kConfig.has_scales()) {
    shared.scales.tokens[kv_stage][row] = token_scale(params.scales, token, outputs.tokens);
  }
}

template <TileConfig kConfig>
__device__ void look_up_tokens(const TileParams& params, TileShared<kConfig>& shared, int kv_stage,
                               const TilePosition& tile, int thread) {
  const QkvOutputs& outputs = params.outputs;
  const TileRoute route = tile_route<kConfig.dtype>(outputs, tile.column,
                                                    tile.is_tail ? kConfig.tail_n : kConfig.tile_n);
  if (thread == 0) {
    TileRoute& left = shared.routes[kv_stage] = route;
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
    stored_tokens(outputs).find_rows(tile.token + first, kThreads, offsets);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first + i * kThreads;
      if (row >= kConfig.tokens()) break;
      leave_places(params, shared, kv_stage, tile, route, row, offsets[i]);
    }
  }
}

// Of codes.
template <TileConfig kConfig>
__device__ void look_up_scales(const TileParams& params, TileShared<kConfig>& shared, int kv_stage,
                               const TilePosition& tile, int thread) {
  if (params.codes.scales_are_in_row || tile.column + kConfig.tile_n <= params.outputs.q_dim)
    return;
#pragma unroll 1
  for (int row = thread; row < kConfig.tokens(); row += kConfig.address_threads()) {
    shared.places[kv_stage].offsets[1][row] =
        stored_tokens(params.outputs).scale_offset(tile.token + row);
  }
}

template <TileConfig kConfig>
__device__ void look_up_columns(const TileParams& params, TileShared<kConfig>& shared, int kv_stage,
                                const TilePosition& tile, int thread) {
  const QkvOutputs& outputs = params.outputs;
  constexpr int kUnroll = kConfig.moves_registers() ? 1 : 4;  // as registers allow
#pragma unroll kUnroll
  for (int within = thread; within < kConfig.tile_n; within += kConfig.address_threads()) {
    const int column = tile.column + within;
    const bool has_bias = outputs.bias != nullptr && column < outputs.columns;
    shared.bias[kv_stage][within] =
        has_bias ? load_float(outputs.bias, outputs.bias_dtype, column) : 0.0f;
    if constexpr (kConfig.has_scales()) {
      shared.scales.columns[kv_stage][within] =
          column_scale(params.scales, column, outputs.columns);
    }
  }
}

// `thread` of address_threads().
template <TileConfig kConfig>
__device__ void address_role(const TileParams& params, TileShared<kConfig>& shared, int thread) {
  cudaGridDependencySynchronize();
  RingPosition<kConfig.kv_stages()> at;
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

// Block scales: two warps that bring the scales of a block of K into the stage that TMA
// fills with the block itself. Not the warps that look up addresses: those begin with a chain of
// dependent loads, and the first product would wait for it.

// Blocks of K whose scales are loaded at a time: 16 bytes of a token, where they stand side by side. Every
// token is a line of L1, and each line that a load touches costs the tensor cores, which read the same
// memory, a clock: loads of one scale each were a tenth of 2048 tokens.
inline constexpr int kScaleBlocks = 4;

__device__ inline void load_side_by_side(const float* from, float (&scales)[kScaleBlocks]) {
  const float4 four = __ldg(reinterpret_cast<const float4*>(from));
  scales[0] = four.x, scales[1] = four.y, scales[2] = four.z, scales[3] = four.w;
}

// The scales of kScaleBlocks blocks of K for a thread's two tokens, 8 rows apart; 1 past the last block.
template <TileConfig kConfig> struct ThreadScales {
  float tokens[2][kScaleBlocks];
  float weight[kScaleBlocks];  // threads 0 and 1: of the tile's first and second 128 weight rows

  __device__ void load(const TileParams& params, const TilePosition& tile, int thread, int first) {
    const QkvScales& scales = params.scales;
    const auto load = [&](bool side_by_side, const auto& scale_at, float(&to)[kScaleBlocks]) {
      if (side_by_side && first < params.k_blocks) return load_side_by_side(scale_at(first), to);
#pragma unroll
      for (int k = 0; k < kScaleBlocks; ++k) {
        const float* from = first + k < params.k_blocks ? scale_at(first + k) : nullptr;
        to[k] = from == nullptr ? 1.0f : __ldg(from);
      }
    };
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = thread / 8 * 16 + thread % 8 + 8 * i;
      const int token = min(tile.token + row, params.outputs.tokens - 1);
      load(
          scales.x_side_by_side, [&](int block) { return scales.of_token(token, block); },
          tokens[i]);
    }
    if (thread >= 2) return;
    const int column = min(tile.column + 128 * thread, params.outputs.columns - 1);
    load(
        scales.weight_side_by_side, [&](int block) { return scales.of_column(column, block); },
        weight);
  }
  __device__ void store(TileShared<kConfig>& shared, int stage, int thread, int k) const {
    shared.scales.block_tokens[stage][thread] = {tokens[0][k], tokens[1][k]};
    float2& weights = shared.scales.block_weights[stage];
    if (thread < 2) (thread == 0 ? weights.x : weights.y) = weight[k];
  }
};

// Loads run while these warps wait for stages, which they fill a ring ahead of the products. Blocks of a
// small tile take less time than a load: it has two sets on their way.
template <TileConfig kConfig>
__device__ void bring_block_scales(const TileParams& params, TileShared<kConfig>& shared,
                                   const TilePosition& tile, int thread,
                                   RingPosition<kConfig.stages>& at) {
  constexpr int kSets = kConfig.moves_registers() ? 1 : 2;
  ThreadScales<kConfig> sets[kSets];
#pragma unroll
  for (int set = 0; set < kSets; ++set) {
    sets[set].load(params, tile, thread, set * kScaleBlocks);
  }
  for (int first = 0; first < params.k_blocks; first += kSets * kScaleBlocks) {
#pragma unroll
    for (int i = 0; i < kSets * kScaleBlocks; ++i) {
      if (first + i >= params.k_blocks) break;
      ThreadScales<kConfig>& scales = sets[i / kScaleBlocks];
      shared.ring.wait_empty(at);
      scales.store(shared, at.stage, thread, i % kScaleBlocks);
      // Every thread for what it wrote: a lane that signals for its warp would do (after
      // __syncwarp), but the race checker does not see that.
      shared.ring.full[at.stage].arrive();
      at.advance();
      if (i % kScaleBlocks == kScaleBlocks - 1) {
        scales.load(params, tile, thread, first + i + 1 + (kSets - 1) * kScaleBlocks);
      }
    }
  }
}

// `thread` of 32 · scale_warps().
template <TileConfig kConfig>
__device__ void scale_role(const TileParams& params, TileShared<kConfig>& shared, int thread) {
  cudaGridDependencySynchronize();
  RingPosition<kConfig.stages> at;
  TilePositions<kConfig> positions(params);
  for (TilePosition tile; positions.next(tile);) {
    bring_block_scales(params, shared, tile, thread, at);
  }
}

}  // namespace quire::cuda
