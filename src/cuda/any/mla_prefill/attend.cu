// SPDX-License-Identifier: Apache-2.0
// Attention of all tokens over one chunk, continuing from the chunks before it.
#include "cuda/any/mla_prefill/projected_keys.cuh"
#include "cuda/common/general_attention/attend_output.cuh"
#include "cuda/common/general_attention/attend_tile.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::mla_prefill {
namespace {

using Config = AttendConfig<32, 1>;
using Tile = AttendTile<Config, GeneralProjectedKeys>;

// What this warp keeps between chunks for one of its rows: each block of value columns has a copy of
// the maximum and the sum, so that no block reads what another one writes.
struct ChunkRowState {
  float* sums;
  float* row;
};

__device__ ChunkRowState kept_row(const ChunkAttentionParams& params, std::int64_t token) {
  const std::int64_t index = token * params.heads + blockIdx.y;
  return {.sums = params.state.sums + index * params.output.width,
          .row = params.state.rows + (index * gridDim.z + blockIdx.z) * 2};
}

template <typename Visit>
__device__ void visit_columns(const ChunkAttentionParams& params, Tile& attend, int i,
                              const Visit& visit) {
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int column = attend.value_column(0) + c;
    if (column < params.output.width) visit(column, attend.sums[i][0][c]);
  }
}

__device__ void load_state(const ChunkAttentionParams& params, const GeneralProjectedKeys& source,
                           Tile& attend) {
#pragma unroll
  for (int i = 0; i < Config::kWarpRows; ++i) {
    const ChunkRowState kept = kept_row(params, source.row(Tile::row_of(i)).token);
    attend.states[i] = {.maximum = kept.row[0], .sum = kept.row[1]};
    visit_columns(params, attend, i, [&](int column, float& sum) { sum = kept.sums[column]; });
  }
}

__device__ void store_state(const ChunkAttentionParams& params, const GeneralProjectedKeys& source,
                            Tile& attend) {
#pragma unroll
  for (int i = 0; i < Config::kWarpRows; ++i) {
    if (Tile::row_of(i) >= source.num_rows()) continue;
    const ChunkRowState kept = kept_row(params, source.row(Tile::row_of(i)).token);
    if (threadIdx.x % 32 == 0) {
      kept.row[0] = attend.states[i].maximum;
      kept.row[1] = attend.states[i].sum;
    }
    visit_columns(params, attend, i, [&](int column, float& sum) { kept.sums[column] = sum; });
  }
}

__global__ void __launch_bounds__(Config::kThreads, 2)
    attend_chunk(const __grid_constant__ ChunkAttentionParams params) {
  __shared__ AttendShared<Config> shared;
  const RowTile tile =
      find_row_tile(params.row_offsets, params.cache.view.batch, 1, Config::kRows, blockIdx.x);
  if (tile.is_empty()) return;
  GeneralProjectedKeys source(params, tile, static_cast<int>(blockIdx.y));
  if (params.place == ChunkPlace::middle && source.is_empty()) return;
  Tile attend(source, shared, static_cast<int>(blockIdx.z) * Config::kValueColumns);
  const bool continues = params.place == ChunkPlace::middle || params.place == ChunkPlace::last;
  const bool finishes = params.place == ChunkPlace::only || params.place == ChunkPlace::last;
  if (continues) load_state(params, source, attend);
  attend.run();
  if (finishes) {
    store_rows(attend, source, params.output);
  } else {
    store_state(params, source, attend);
  }
}

}  // namespace

void launch_chunk_attention(const ChunkAttentionParams& params, cudaStream_t stream) {
  const std::int64_t tiles = num_row_tiles(params.tokens, params.cache.view.batch, Config::kRows);
  launch(attend_chunk,
         {.grid = dim3(num_blocks(tiles, 1), static_cast<unsigned>(params.heads),
                       num_blocks(params.output.width, Config::kValueColumns)),
          .block = dim3(Config::kThreads)},
         stream, params);
}

}  // namespace quire::cuda::any::mla_prefill
