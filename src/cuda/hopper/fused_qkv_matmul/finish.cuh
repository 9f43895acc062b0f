// SPDX-License-Identifier: Apache-2.0
// From finished sums to values: a thread's runs of 8 neighbouring columns get their scales and bias
// from shared memory. Thread: tokens `row` and `row + 8` of the tile (half 0, 1).
#pragma once

#include "cuda/hopper/fused_qkv_matmul/shared.cuh"

namespace quire::cuda::hopper {

__device__ inline void load_columns(const float* from, float (&columns)[8]) {
  reinterpret_cast<float4&>(columns[0]) = *reinterpret_cast<const float4*>(from);
  reinterpret_cast<float4&>(columns[4]) = *reinterpret_cast<const float4*>(from + 4);
}

struct AddBias {
  struct Columns {
    alignas(16) float bias[8];
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

struct ScaleAndAddBias {
  struct Columns {
    alignas(16) float scale[8];
    alignas(16) float bias[8];
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
  __device__ void finish(float (&run)[8], const Columns& columns, int half) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      run[i] = run[i] * (tokens[half] * columns.scale[i]) + columns.bias[i];
    }
  }
};

template <TileConfig kConfig>
__device__ auto finishing(const TileShared<kConfig>& shared, int turn, int row) {
  if constexpr (kConfig.promotes()) {
    return ScaleAndAddBias{
        .scale = shared.scales.columns[turn],
        .bias = shared.bias[turn],
        .tokens = {shared.scales.tokens[turn][row], shared.scales.tokens[turn][row + 8]}};
  } else {
    return AddBias{.bias = shared.bias[turn]};
  }
}

}  // namespace quire::cuda::hopper
