// SPDX-License-Identifier: Apache-2.0
// From finished sums to values: a thread's runs of 8 neighbouring columns get their scales and bias
// from shared memory. Thread: tokens `row` and `row + 8` of the tile (half 0, 1).
#pragma once

#include <numeric>

#include "cuda/common/matmul/shared.cuh"
#include "cuda/common/mma/row_order.h"

namespace quire::cuda {

__device__ inline void load_columns(const float* from, float (&columns)[8]) {
  const float4 low = *reinterpret_cast<const float4*>(from);
  const float4 high = *reinterpret_cast<const float4*>(from + 4);
  columns[0] = low.x, columns[1] = low.y, columns[2] = low.z, columns[3] = low.w;
  columns[4] = high.x, columns[5] = high.y, columns[6] = high.z, columns[7] = high.w;
}

// Nothing to do: no bias, and all scales are those of blocks.
struct KeepSums {
  struct Columns {};

  __device__ Columns of_columns(int) const { return {}; }
  __device__ void finish(float (&)[8], const Columns&, int) const {}
};

struct AddBias {
  struct Columns {
    float bias[8];
  };

  const float* bias;  // [tile_n], shared

  __device__ Columns of_columns(int within) const {
    Columns columns;
    load_columns(bias + within, columns.bias);
    return columns;
  }
  __device__ void finish(float (&run)[8], const Columns& columns, int) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) run[i] += columns.bias[i];
  }
};

struct ScaleSums {
  struct Columns {
    float scale[8];
  };

  const float* scale;  // [tile_n], shared
  float tokens[2];

  __device__ Columns of_columns(int within) const {
    Columns columns;
    load_columns(scale + within, columns.scale);
    return columns;
  }
  __device__ void finish(float (&run)[8], const Columns& columns, int half) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) run[i] *= tokens[half] * columns.scale[i];
  }
};

struct ScaleAndAddBias {
  struct Columns {
    float scale[8];
    float bias[8];
  };

  const float* scale;  // [tile_n], shared
  const float* bias;   // [tile_n], shared
  float tokens[2];

  __device__ ScaleSums scale_only() const { return {scale, {tokens[0], tokens[1]}}; }
  __device__ Columns of_columns(int within) const {
    Columns columns;
    load_columns(scale + within, columns.scale);
    load_columns(bias + within, columns.bias);
    return columns;
  }
  __device__ void finish(float (&run)[8], const Columns& columns, int half) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      run[i] = run[i] * (tokens[half] * columns.scale[i]) + columns.bias[i];
    }
  }
};

__device__ inline bool keeps_sums(const TileParams& params) {
  const QkvScales& scales = params.scales;
  const bool has_row_scales = scales.x != nullptr && !(scales.x_by_block && scales.weight_by_block);
  return params.outputs.bias == nullptr && !has_row_scales;
}

template <TileConfig kConfig>
__device__ auto finishing(const TileShared<kConfig>& shared, int kv_stage, int row) {
  if constexpr (kConfig.has_scales()) {
    return ScaleAndAddBias{
        .scale = shared.scales.columns[kv_stage],
        .bias = shared.bias[kv_stage],
        .tokens = {shared.scales.tokens[kv_stage][row], shared.scales.tokens[kv_stage][row + 8]}};
  } else {
    return AddBias{.bias = shared.bias[kv_stage]};
  }
}

// Block scales as a thread applies them to the sums over a block of K.

// Where a thread's sums lie in the tile.
struct BlockPlace {
  int thread;  // of the warpgroup's 128
  int consumer;
  int row;           // of the first token; the second is 8 below
  int second_group;  // first group of 32 columns in the second block of 128 weight rows
};

// For a thread's two tokens.
struct BlockFactors {
  float first[2];   // columns in the tile's first block of 128 weight rows
  float second[2];  // in its second
};

// To be called before the products of the stage are started: one thread signals for all that a
// stage may be filled again, as soon as they have ended.
template <TileConfig kConfig>
__device__ BlockFactors block_factors(const TileShared<kConfig>& shared, int stage, int row) {
  const float2 weights = shared.scales.block_weights[stage];
  const float2 tokens = shared.scales.block_tokens[stage][pair_of_row(row)];
  return {.first = {tokens.x * weights.x, tokens.y * weights.x},
          .second = {tokens.x * weights.y, tokens.y * weights.y}};
}

enum class SumsAre : std::uint8_t { begun, added_to };

// sums (+)= the part's products, which have arrived, times their scales. All of one token, then all of the other:
// multiply-adds that follow each other with the same factor take it from the register cache. Each register that
// they read is one that the other warpgroup's products wait for: 0.9 – 1.4 % of 2048 and 8192 tokens.
template <TileConfig kConfig, SumsAre kSums, int kColumns = kConfig.tile_n, int kRegisters>
__device__ void add_part(int part, float (&products)[kRegisters], const BlockFactors& factors,
                         const BlockPlace& place, float (&sums)[kColumns / 2]) {
  pin(products);
#pragma unroll
  for (int n = 0; n < kRegisters; ++n) {
    const int half = n / (kRegisters / 2);
    const int i = n % (kRegisters / 2) / 2 * 4 + 2 * half + n % 2;
    const int index = part * kRegisters + i;
    // Tiles begin where their width allows: no need to ask about most groups.
    constexpr int kFirst = std::gcd(kColumns, 128) / kGroupRows;
    const int group = index / 16;
    const bool is_first = group < kFirst || (group < 4 && group < place.second_group);
    const float product = (is_first ? factors.first[half] : factors.second[half]) * products[i];
    sums[index] = kSums == SumsAre::begun ? product : sums[index] + product;
  }
}

}  // namespace quire::cuda
