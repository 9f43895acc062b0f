// SPDX-License-Identifier: Apache-2.0
// A consumer warpgroup: 64 tokens × tile_n columns, summed in registers and stored from there.
#pragma once

#include <type_traits>

#include "cuda/hopper/fused_qkv_matmul/promoted_sums.cuh"
#include "cuda/hopper/fused_qkv_matmul/store_columns.cuh"
#include "cuda/hopper/fused_qkv_matmul/tile_position.cuh"

namespace quire::cuda::hopper {

// bf16, f16. One batch of products stays in flight: the stage before it is released.
template <TileConfig kConfig>
__device__ void sum_tile(int k_blocks, TileShared<kConfig>& shared, int consumer,
                         RingPosition<kConfig.stages>& at, float (&sums)[kConfig.tile_n / 2]) {
  int previous = 0;
  for (int block = 0; block < k_blocks; ++block, at.advance()) {
    shared.ring.wait_full(at);
    const std::byte* x = &shared.x[at.stage][consumer * kWgmmaRows * kRowBytes];
    pin(sums);
    cute::warpgroup_arrive();
    multiply_rows<Wgmma<kConfig.dtype, kConfig.tile_n>>(
        tile_descriptor(x), tile_descriptor(shared.weight[at.stage]), sums, block == 0);
    cute::warpgroup_commit_batch();
    pin(sums);
    if (block > 0) {
      cute::warpgroup_wait<1>();
      release<kConfig>(shared, previous);
    }
    previous = at.stage;
  }
  cute::warpgroup_wait<0>();
  pin(sums);
  release<kConfig>(shared, previous);
}

template <TileConfig kConfig>
__device__ void multiply_role(const TileParams& params, TileShared<kConfig>& shared, int consumer) {
  using Scales = std::conditional_t<kConfig.promotes(), Fp8Scales, Unscaled>;
  const int row =
      consumer * kWgmmaRows + static_cast<int>(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
  float sums[kConfig.tile_n / 2];
  RingPosition<kConfig.stages> at;
  RingPosition<2> kv_at;
  TilePositions<kConfig> positions(params);
  for (TilePosition tile; positions.next(tile); kv_at.advance()) {
    const int token = tile.token + row;
    const Scales scales(params.scales, token, params.outputs.tokens);
    if constexpr (kConfig.promotes()) {
      const WeightBlockScales weight(params.scales, params.outputs.columns, tile.column);
      sum_promoted<kConfig>(params.k_blocks, shared, consumer, scales, weight, at, sums);
    } else {
      sum_tile<kConfig>(params.k_blocks, shared, consumer, at, sums);
    }
    shared.kv_ring.wait_full(kv_at);
    const std::int64_t kv_offsets[2] = {shared.kv_offsets[kv_at.stage][row],
                                        shared.kv_offsets[kv_at.stage][row + 8]};
    shared.kv_ring.empty[kv_at.stage].arrive();
    store_columns(params.outputs, scales, sums, token, tile.column, kv_offsets);
  }
}

}  // namespace quire::cuda::hopper
