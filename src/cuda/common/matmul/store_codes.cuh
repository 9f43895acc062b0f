// SPDX-License-Identifier: Apache-2.0
// What the tile kernels do with a tile that has columns of K or V, where those become codes with scales.
#pragma once

#include "cuda/common/matmul/quantized_kv_epilogue.cuh"
#include "cuda/common/matmul/roles/multiply.cuh"

namespace quire::cuda {

// Where a thread's two tokens go, in a tile that has columns of K or V.
template <TileConfig kConfig>
__device__ CodePlaces code_places(const TileParams& params, const TileShared<kConfig>& shared,
                                  int turn, int first_row) {
  const QkvOutputs& outputs = params.outputs;
  const TileRoute& tile = shared.routes[turn];
  CodePlaces places{};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + 8 * half;
    const int token = tile.token + row;
    if (token < tile.first_token || token >= tile.end_token) continue;
    places.q[half] = outputs.q + token * outputs.q_stride_bytes;
    const std::int64_t kv = shared.places[turn].offsets[0][row];
    const std::int64_t scale = shared.places[turn].offsets[1][row];
    if (kv < 0) continue;
    places.rows[half] = outputs.keys.data + kv;
    if (params.codes.scales_are_in_row) {
      places.scales[half] = places.rows[half];
    } else if (scale >= 0) {
      places.scales[half] = outputs.keys.scales.data + scale;
    }
  }
  return places;
}

// With the block beside this one, where a granule of K or V lies in both tiles. `left` and `right` are those of the
// tile's first and last group.
template <TileConfig kConfig>
__device__ bool exchange_largest(const TileParams& params, TileShared<kConfig>& shared,
                                 Walk<kConfig>& walk, int column, float (&left)[2],
                                 float (&right)[2]) {
  const bool is_right = rank_in_cluster<kConfig.cluster>() % 2 == 1;
  const int border = is_right ? column : column + kConfig.tile_n;
  const int first = border - border % params.codes.granule;
  if (first == border || first < params.outputs.q_dim || first >= params.outputs.columns) {
    return false;
  }
  float largest[2] = {is_right ? left[0] : right[0], is_right ? left[1] : right[1]};
  shared.pair.exchange(walk.consumer, walk.row, walk.exchanges++, largest);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    left[half] = is_right ? largest[half] : left[half];
    right[half] = is_right ? right[half] : largest[half];
  }
  return true;
}

template <TileConfig kConfig, int kRegisters>
__device__ void store_codes(const TileParams& params, TileShared<kConfig>& shared,
                            Walk<kConfig>& walk, const float (&sums)[kRegisters]) {
  const int turn = walk.kv_at.stage;
  const int column = shared.routes[turn].column;
  const auto finish = finishing<kConfig>(shared, turn, walk.row);
  QuantizedKvEpilogue tile(params, column, finish, sums);
  tile.store(code_places(params, shared, turn, walk.row), [&](float(&left)[2], float(&right)[2]) {
    if constexpr (!kConfig.pairs_granules())
      return false;
    else
      return exchange_largest(params, shared, walk, column, left, right);
  });
}

}  // namespace quire::cuda
