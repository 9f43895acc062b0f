// SPDX-License-Identifier: Apache-2.0
// Three warps: find where each token's K row stands in the pages, one tile ahead of the stores, and
// bring the scales of fp8 products.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/kv_offset.cuh"
#include "cuda/hopper/fused_qkv_matmul/shared.cuh"
#include "cuda/hopper/fused_qkv_matmul/tile_position.cuh"
#include "cuda/tile/load_float.cuh"

namespace quire::cuda::hopper {

template <TileConfig kConfig>
__device__ void bring_bias(const QkvOutputs& outputs, TileShared<kConfig>& shared, int turn,
                           const TilePosition& tile, int thread) {
  for (int column = thread; column < kConfig.tile_n; column += shared.kAddressThreads) {
    const bool has_bias = outputs.bias != nullptr && tile.column + column < outputs.columns;
    shared.bias[turn][column] =
        has_bias ? load_float(outputs.bias, outputs.bias_dtype, tile.column + column) : 0.0f;
  }
}

template <TileConfig kConfig>
__device__ void bring_finished_scales(const TileParams& params, TileShared<kConfig>& shared,
                                      int turn, const TilePosition& tile, int thread) {
  const QkvOutputs& outputs = params.outputs;
  for (int row = thread; row < kConfig.tokens(); row += shared.kAddressThreads) {
    shared.scales.tokens[turn][row] =
        finished_token_scale(params.scales, tile.token + row, outputs.tokens);
  }
  for (int column = thread; column < kConfig.tile_n; column += shared.kAddressThreads) {
    shared.scales.columns[turn][column] =
        finished_column_scale(params.scales, tile.column + column, outputs.columns);
  }
}

// A block's scales are loaded before its stage is free.
template <TileConfig kConfig>
__device__ void bring_block_scales(const TileParams& params, TileShared<kConfig>& shared,
                                   RingPosition<kConfig.stages>& at, const TilePosition& tile,
                                   int thread) {
  constexpr int kRows = (kConfig.tokens() + 95) / 96;  // of a thread
  const QkvOutputs& outputs = params.outputs;
  for (int block = 0; block < params.k_blocks; ++block, at.advance()) {
    float of_tokens[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      of_tokens[i] = block_token_scale(params.scales, tile.token + thread + 96 * i, outputs.tokens,
                                       block);
    }
    float of_weight = 0.0f;
    if (thread < 2) {
      of_weight = block_weight_scale(params.scales, tile.column + 128 * thread, outputs.columns,
                                     block);
    }
    shared.ring.wait_empty(at);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = thread + 96 * i;
      if (row < kConfig.tokens()) shared.scales.block_tokens[at.stage][row] = of_tokens[i];
    }
    if (thread < 2) (&shared.scales.block_weights[at.stage].x)[thread] = of_weight;
    __syncwarp();
    if (thread % 32 == 0) shared.ring.full[at.stage].arrive();
  }
}

template <TileConfig kConfig>
__device__ void address_role(const TileParams& params, TileShared<kConfig>& shared, int thread) {
  RingPosition<2> at;
  RingPosition<kConfig.stages> block_at;
  TilePositions<kConfig> positions(params);
  for (TilePosition tile; positions.next(tile); at.advance()) {
    shared.kv_ring.wait_empty(at);
    for (int row = thread; row < kConfig.tokens(); row += shared.kAddressThreads) {
      shared.kv_offsets[at.stage][row] = kv_offset(params.outputs, tile.token + row);
    }
    bring_bias(params.outputs, shared, at.stage, tile, thread);
    if constexpr (kConfig.promotes()) {
      bring_finished_scales(params, shared, at.stage, tile, thread);
    }
    shared.kv_ring.full[at.stage].arrive();
    if constexpr (kConfig.scaling == Scaling::blocks) {
      bring_block_scales(params, shared, block_at, tile, thread);
    }
  }
}

}  // namespace quire::cuda::hopper
