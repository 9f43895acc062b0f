// SPDX-License-Identifier: Apache-2.0
// Block scales: two warps that bring the scales of a block of K into the stage that the copy engine
// fills with the block itself. Not the warps that look up addresses: those begin with a chain of
// dependent loads, and the first product would wait for it.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/shared.cuh"
#include "cuda/hopper/fused_qkv_matmul/tile_position.cuh"

namespace quire::cuda::hopper {

// A thread's scales of one block of K.
template <TileConfig kConfig> struct ThreadScales {
  static constexpr int kThreads = 32 * kConfig.scale_warps();
  static constexpr int kRows = kConfig.tokens() / kThreads;

  float tokens[kRows];
  float weight;

  __device__ void load(const TileParams& params, const TilePosition& tile, int thread, int block) {
    const QkvOutputs& outputs = params.outputs;
    if (block >= params.k_blocks) return;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      tokens[i] = token_block_scale(params.scales, tile.token + thread + kThreads * i,
                                    outputs.tokens, block);
    }
    weight =
        column_block_scale(params.scales, tile.column + 128 * (thread % 2), outputs.columns, block);
  }
  __device__ void store(TileShared<kConfig>& shared, int stage, int thread) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      shared.scales.block_tokens[stage][thread + kThreads * i] = tokens[i];
    }
    if (thread < 2) shared.scales.block_weights[stage][thread] = weight;
  }
};

// The scales of kAhead blocks are on their way: a block of a small tile takes less time than a load.
template <TileConfig kConfig>
__device__ void bring_block_scales(const TileParams& params, TileShared<kConfig>& shared,
                                   const TilePosition& tile, int thread,
                                   RingPosition<kConfig.stages>& at) {
  constexpr int kAhead = 4;
  ThreadScales<kConfig> scales[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) scales[i].load(params, tile, thread, i);
  for (int first = 0; first < params.k_blocks; first += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i >= params.k_blocks) break;
      shared.ring.wait_empty(at);
      scales[i].store(shared, at.stage, thread);
      // Every thread for what it wrote: a lane that signals for its warp would do (after
      // __syncwarp), but the race checker does not see that.
      shared.ring.full[at.stage].arrive();
      at.advance();
      scales[i].load(params, tile, thread, first + i + kAhead);
    }
  }
}

// `thread` of 32 · scale_warps().
template <TileConfig kConfig>
__device__ void scale_role(const TileParams& params, TileShared<kConfig>& shared, int thread) {
  RingPosition<kConfig.stages> at;
  TilePositions<kConfig> positions(params);
  for (TilePosition tile; positions.next(tile);) {
    bring_block_scales(params, shared, tile, thread, at);
  }
}

}  // namespace quire::cuda::hopper
