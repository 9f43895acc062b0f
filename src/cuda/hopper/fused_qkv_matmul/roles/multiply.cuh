// SPDX-License-Identifier: Apache-2.0
// A consumer warpgroup: 64 tokens × tile_n columns, summed in registers and stored from there.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/finish.cuh"
#include "cuda/hopper/fused_qkv_matmul/promoted_sums.cuh"
#include "cuda/hopper/fused_qkv_matmul/store_columns.cuh"
#include "cuda/hopper/fused_qkv_matmul/tile_position.cuh"
#include "cuda/hopper/tile/row_order.h"

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

// Block scales of the largest tile: its warpgroups multiply in turns.
template <TileConfig kConfig>
using MultiplyTurns = Turns<kConfig.scaling == Scaling::blocks && kConfig.part_sets() == 1 ? 2 : 1>;

template <TileConfig kConfig>
__device__ void sum_any(const TileParams& params, TileShared<kConfig>& shared,
                        const BlockPlace& place, const MultiplyTurns<kConfig>& turns,
                        RingPosition<kConfig.stages>& at, float (&sums)[kConfig.tile_n / 2]) {
  if constexpr (kConfig.scaling == Scaling::none) {
    sum_tile<kConfig>(params.k_blocks, shared, place.consumer, at, sums);
  } else if constexpr (kConfig.scaling == Scaling::rows) {
    sum_rows<kConfig>(params.k_blocks, shared, place.consumer, at, sums);
  } else if constexpr (kConfig.part_sets() == 2) {
    sum_blocks<kConfig>(params.k_blocks, shared, place, at, sums);
  } else {
    sum_blocks_in_turns<kConfig>(params.k_blocks, shared, place, turns, at, sums);
  }
}

template <TileConfig kConfig>
__device__ void multiply_role(const TileParams& params, TileShared<kConfig>& shared, int consumer) {
  const int row =
      consumer * kWgmmaRows + static_cast<int>(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
  float sums[kConfig.tile_n / 2];
  RingPosition<kConfig.stages> at;
  RingPosition<2> kv_at;
  const MultiplyTurns<kConfig> turns(consumer);
  TilePositions<kConfig> positions(params);
  for (TilePosition tile; positions.next(tile); kv_at.advance()) {
    const BlockPlace place{
        .consumer = consumer, .row = row, .second_group = (128 - tile.column % 128) / kGroupRows};
    sum_any<kConfig>(params, shared, place, turns, at, sums);
    shared.kv_ring.wait_full(kv_at);
    const std::int64_t kv_offsets[2] = {shared.kv_offsets[kv_at.stage][row],
                                        shared.kv_offsets[kv_at.stage][row + 8]};
    store_columns(params.outputs, finishing<kConfig>(shared, kv_at.stage, row), sums,
                  tile.token + row, tile.column, kv_offsets);
    shared.kv_ring.empty[kv_at.stage].arrive();
  }
}

}  // namespace quire::cuda::hopper
