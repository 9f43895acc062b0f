// SPDX-License-Identifier: Apache-2.0
// A consumer warpgroup: 64 tokens × tile_n columns, summed in registers and stored from there.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/block_sums.cuh"
#include "cuda/hopper/fused_qkv_matmul/tile_position.cuh"
#include "cuda/hopper/fused_qkv_matmul/waiting_tile.cuh"
#include "cuda/hopper/tile/row_order.h"

namespace quire::cuda::hopper {

// bf16, f16.
template <TileConfig kConfig, typename Meanwhile>
__device__ void sum_tile(int k_blocks, TileShared<kConfig>& shared, int consumer,
                         RingPosition<kConfig.stages>& at, float (&sums)[kConfig.tile_n / 2],
                         const Meanwhile& meanwhile) {
  BlockChain<kConfig> chain{shared, consumer, at, sums};
  int block = start_and_store(k_blocks, chain, meanwhile, std::make_integer_sequence<int, 4>{});
  for (; block < k_blocks; ++block) chain.start(false);
  chain.finish();
}

template <TileConfig kConfig, typename Meanwhile, typename NearTheEnd>
__device__ void sum_any(const TileParams& params, TileShared<kConfig>& shared,
                        const BlockPlace& place, RingPosition<kConfig.stages>& at,
                        float (&sums)[kConfig.tile_n / 2], const Meanwhile& meanwhile,
                        const NearTheEnd& near_the_end) {
  if constexpr (kConfig.scaling == Scaling::none) {
    sum_tile<kConfig>(params.k_blocks, shared, place.consumer, at, sums, meanwhile);
  } else if constexpr (kConfig.scaling == Scaling::rows) {
    sum_rows<kConfig>(params.k_blocks, shared, place.consumer, at, sums, meanwhile, near_the_end);
  } else if constexpr (kConfig.part_sets() == 2) {
    sum_blocks<kConfig>(params.k_blocks, shared, place, at, sums, meanwhile);
  } else {
    sum_blocks_by_parts<kConfig>(params.k_blocks, shared, place, at, sums, meanwhile);
  }
}

// The tile waits to be stored, or is stored now if it has no row addresses.
template <TileConfig kConfig>
__device__ void finish_tile(const TileParams& params, TileShared<kConfig>& shared, int turn,
                            int row, const float (&sums)[kConfig.tile_n / 2],
                            WaitingTile<kConfig>& done) {
  const TileRoute& tile = shared.routes[turn];
  if (tile.groups > 0) {
    done.take(params, shared, turn, row, sums);
    return;
  }
  const std::int64_t kv_offsets[2] = {shared.places[turn].kv_offsets[row],
                                      shared.places[turn].kv_offsets[row + 8]};
  store_columns(params.outputs, finishing<kConfig>(shared, turn, row), sums, tile.token + row,
                tile.column, kv_offsets);
  shared.kv_ring.empty[turn].arrive();
  done.forget();
}

template <TileConfig kConfig>
__device__ void multiply_role(const TileParams& params, TileShared<kConfig>& shared, int consumer) {
  const int row =
      consumer * kWgmmaRows + static_cast<int>(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
  float sums[kConfig.tile_n / 2];
  WaitingTile<kConfig> done;
  done.forget();
  RingPosition<kConfig.stages> at;
  RingPosition<kConfig.turns()> kv_at;
  TilePositions<kConfig> positions(params);
  for (TilePosition tile; positions.next(tile); kv_at.advance()) {
    const BlockPlace place{
        .consumer = consumer, .row = row, .second_group = (128 - tile.column % 128) / kGroupRows};
    sum_any<kConfig>(
        params, shared, place, at, sums,
        [&](auto part) { done.template store<decltype(part)>(params, shared, row, sums); },
        [&] {
          shared.kv_ring.wait_full(kv_at);
          done.look_up(params, shared, kv_at.stage, row);
        });
    shared.kv_ring.wait_full(kv_at);
    finish_tile<kConfig>(params, shared, kv_at.stage, row, sums, done);
  }
  done.template store<WholeTile>(params, shared, row, sums);
}

}  // namespace quire::cuda::hopper
