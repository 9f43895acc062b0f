// SPDX-License-Identifier: Apache-2.0
// The scales of an fp8 product, on their way through shared memory. Loaded by the threads that
// multiply, they cost more than the stores of a tile do.
#pragma once

#include "cuda/common/matmul/config.h"
#include "cuda/common/matmul/params.h"

namespace quire::cuda {

template <TileConfig kConfig, Scaling kScaling = kConfig.scaling> struct SharedScales {};

// Of finished sums; one or two tiles in turn.
template <TileConfig kConfig> struct SharedScales<kConfig, Scaling::rows> {
  alignas(16) float columns[kConfig.turns()][kConfig.tile_n];
  float tokens[kConfig.turns()][kConfig.tokens()];
};

// Of the sums over a block of K as well; a stage holds one block.
template <TileConfig kConfig>
struct SharedScales<kConfig, Scaling::blocks> : SharedScales<kConfig, Scaling::rows> {
  float2 block_weights[kConfig.stages];  // a tile touches at most two blocks of 128 weight rows
  // Rows r and r + 8 of the tile side by side: a thread that multiplies has both, and every line of
  // shared memory that is read costs the tensor cores a clock.
  float2 block_tokens[kConfig.stages][kConfig.tokens() / 2];
};

// Where block_tokens has those of rows r and r + 8.
__device__ inline int pair_of_row(int row) {
  return row / 16 * 8 + row % 8;
}

// Tokens and columns past the end use the last one's scale.
__device__ inline float token_scale(const QkvScales& scales, int token, int tokens) {
  if (scales.x_by_block) return 1.0f;
  return __ldg(scales.x + min(token, tokens - 1) * scales.x_token_stride);
}
__device__ inline float column_scale(const QkvScales& scales, int column, int columns) {
  if (scales.weight_by_block) return 1.0f;
  return __ldg(scales.weight + min(column, columns - 1) * scales.weight_row_stride);
}
}  // namespace quire::cuda
