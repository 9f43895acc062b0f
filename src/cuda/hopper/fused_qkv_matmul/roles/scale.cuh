// SPDX-License-Identifier: Apache-2.0
// Block scales: two warps that bring the scales of a block of K into the stage that the copy engine
// fills with the block itself. Not the warps that look up addresses: those begin with a chain of
// dependent loads, and the first product would wait for it.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/shared.cuh"
#include "cuda/hopper/fused_qkv_matmul/tile_position.cuh"

namespace quire::cuda::hopper {

// A block's scales are on their way before its stage is free.
template <TileConfig kConfig>
__device__ void bring_block_scales(const TileParams& params, TileShared<kConfig>& shared,
                                   const TilePosition& tile, int thread,
                                   RingPosition<kConfig.stages>& at) {
  constexpr int kThreads = 32 * kConfig.scale_warps();
  constexpr int kRows = kConfig.tokens() / kThreads;  // of a thread
  const QkvOutputs& outputs = params.outputs;
  for (int block = 0; block < params.k_blocks; ++block, at.advance()) {
    float of_tokens[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      of_tokens[i] = token_block_scale(params.scales, tile.token + thread + kThreads * i,
                                       outputs.tokens, block);
    }
    const float of_weight =
        column_block_scale(params.scales, tile.column + 128 * (thread % 2), outputs.columns, block);
    shared.ring.wait_empty(at);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      shared.scales.block_tokens[at.stage][thread + kThreads * i] = of_tokens[i];
    }
    if (thread < 2) shared.scales.block_weights[at.stage][thread] = of_weight;
    // Every thread for what it wrote: a lane that signals for its warp would do (after __syncwarp),
    // but the race checker does not see that.
    shared.ring.full[at.stage].arrive();
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
