// SPDX-License-Identifier: Apache-2.0
// The scales of an fp8 product on their way through shared memory: of a tile's tokens and columns for
// the finished sums, of every 128 of K where they come in blocks. Loaded where they are used, they
// cost the stores of a tile more than the stores themselves.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/config.h"
#include "cuda/hopper/fused_qkv_matmul/params.h"

namespace quire::cuda::hopper {

template <TileConfig kConfig, Scaling kScaling = kConfig.scaling> struct SharedScales {};

template <TileConfig kConfig> struct SharedScales<kConfig, Scaling::rows> {
  alignas(16) float columns[2][kConfig.tile_n];  // two tiles in turn
  float tokens[2][kConfig.tokens()];
};

template <TileConfig kConfig>
struct SharedScales<kConfig, Scaling::blocks> : SharedScales<kConfig, Scaling::rows> {
  alignas(8) float2 block_weights[kConfig.stages];  // of the first and the second 128 rows
  float block_tokens[kConfig.stages][kConfig.tokens()];
};

// A tile's finished sums × these; 1 where the scales come in blocks.
__device__ inline float finished_token_scale(const QkvScales& scales, int token, int tokens) {
  return scales.x_by_block ? 1.0f
                           : __ldg(scales.x + min(token, tokens - 1) * scales.x_token_stride);
}
__device__ inline float finished_column_scale(const QkvScales& scales, int column, int columns) {
  if (scales.weight_by_block) return 1.0f;
  return __ldg(scales.weight + min(column, columns - 1) * scales.weight_row_stride);
}
// The sum over a block of K × these; 1 where a scale does not come in blocks.
__device__ inline float block_token_scale(const QkvScales& scales, int token, int tokens,
                                          int block) {
  if (!scales.x_by_block) return 1.0f;
  return __ldg(scales.x + min(token, tokens - 1) * scales.x_token_stride +
               block * scales.x_block_stride);
}
// Of the 128 weight rows that `column` belongs to.
__device__ inline float block_weight_scale(const QkvScales& scales, int column, int columns,
                                           int block) {
  if (!scales.weight_by_block) return 1.0f;
  return __ldg(scales.weight + min(column, columns - 1) / 128 * scales.weight_row_stride +
               block * scales.weight_block_stride);
}

// Finishing a thread's runs of 8 columns, of tokens `row` and `row + 8` of the tile (half 0, 1).
__device__ inline void load_columns(const float* from, float (&of)[8]) {
  const float4 low = *reinterpret_cast<const float4*>(from);
  const float4 high = *reinterpret_cast<const float4*>(from + 4);
  of[0] = low.x, of[1] = low.y, of[2] = low.z, of[3] = low.w;
  of[4] = high.x, of[5] = high.y, of[6] = high.z, of[7] = high.w;
}

struct Unscaled {
  struct Columns {
    float bias[8];
  };

  const float* bias;  // [tile_n], shared

  __device__ Columns of_columns(int within) const {
    Columns columns;
    load_columns(bias + within, columns.bias);
    return columns;
  }
  __device__ void finish(float (&run)[8], const Columns& of, int) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) run[i] += of.bias[i];
  }
};

struct Scaled {
  struct Columns {
    float scale[8];
    float bias[8];
  };

  const float* scale;  // [tile_n], shared
  const float* bias;   // [tile_n], shared
  float tokens[2];

  __device__ Columns of_columns(int within) const {
    Columns columns;
    load_columns(scale + within, columns.scale);
    load_columns(bias + within, columns.bias);
    return columns;
  }
  __device__ void finish(float (&run)[8], const Columns& of, int half) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) run[i] = run[i] * (tokens[half] * of.scale[i]) + of.bias[i];
  }
};

}  // namespace quire::cuda::hopper
