// SPDX-License-Identifier: Apache-2.0
// From finished sums to values: a thread's runs of 8 neighbouring columns get their scales and bias
// from shared memory. Thread: tokens `row` and `row + 8` of the tile (half 0, 1).
#pragma once

#include "cuda/common/matmul/shared.cuh"

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
__device__ auto finishing(const TileShared<kConfig>& shared, int turn, int row) {
  if constexpr (kConfig.has_scales()) {
    return ScaleAndAddBias{
        .scale = shared.scales.columns[turn],
        .bias = shared.bias[turn],
        .tokens = {shared.scales.tokens[turn][row], shared.scales.tokens[turn][row + 8]}};
  } else {
    return AddBias{.bias = shared.bias[turn]};
  }
}

}  // namespace quire::cuda
