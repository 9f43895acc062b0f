// SPDX-License-Identifier: Apache-2.0
// One thread: keeps the ring full of token and weight tiles. What the blocks of a cluster share is
// fetched in parts, one by each block for all of them.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/shared.cuh"
#include "cuda/hopper/fused_qkv_matmul/tile_position.cuh"
#include "cuda/hopper/tile/row_order.h"
#include "cuda/hopper/tile/tma.cuh"

namespace quire::cuda::hopper {

template <TileConfig kConfig>
__device__ void load_tokens(const TileParams& params, TileShared<kConfig>& shared, int stage, int k,
                            int token) {
  constexpr std::uint16_t kEveryBlock = (1 << kConfig.cluster) - 1;
  const int first =
      params.box_tokens * (rank_in_cluster<kConfig.cluster>() % kConfig.token_sharers());
  const BoxLoad load{
      .map = &params.x,
      .shared = &shared.x[stage][first * kRowBytes],
      .full = &shared.ring.full[stage],
      .hint = params.weight_is_read_once ? L2Hint::EVICT_LAST : L2Hint::EVICT_NORMAL};
  if constexpr (kConfig.token_sharers() == 1) {
    load_box(load, k, token);
  } else {
    load_box_for(load, k, token + first, kEveryBlock);
  }
}

template <TileConfig kConfig>
__device__ void load_weight(const TileParams& params, TileShared<kConfig>& shared, int stage, int k,
                            const TilePosition& tile) {
  constexpr int kBoxGroups = kConfig.box_groups();
  constexpr int kBoxes = kConfig.groups() / kBoxGroups;
  static_assert(!kConfig.has_halves() || kBoxes % 2 == 0);
  constexpr std::uint16_t kEveryBlock = (1 << kConfig.cluster) - 1;
  const int rank = rank_in_cluster<kConfig.cluster>();
#pragma unroll
  for (int box = 0; box < kBoxes; ++box) {
    if (kConfig.weight_sharers() > 1 && box % kConfig.weight_sharers() != rank) continue;
    if (kConfig.has_halves() && tile.is_half && 2 * box >= kBoxes) continue;
    const int group = box * kBoxGroups;
    const BoxLoad load{
        .map = &params.weight,
        .shared = &shared.weight[stage][group * kGroupRows * kRowBytes],
        .full = &shared.ring.full[stage],
        .hint = params.weight_is_read_once ? L2Hint::EVICT_FIRST : L2Hint::EVICT_NORMAL};
    if constexpr (kConfig.weight_sharers() == 1) {
      load_groups(load, k, tile.column / kGroupRows + group);
    } else {
      load_groups(load, k, tile.column / kGroupRows + group, kEveryBlock);
    }
  }
}

template <TileConfig kConfig>
__device__ void load_role(const TileParams& params, TileShared<kConfig>& shared) {
  constexpr int kElements = kRowBytes * 8 / bits(kConfig.dtype);  // of K in a block
  int rows = params.box_tokens * kConfig.token_sharers() + kConfig.tile_n;
  RingPosition<kConfig.stages> at;
  TilePositions<kConfig> positions(params);
  for (TilePosition tile; positions.next(tile);) {
    if constexpr (kConfig.has_halves()) {
      rows = params.box_tokens * kConfig.token_sharers() +
             (tile.is_half ? kConfig.tile_n / 2 : kConfig.tile_n);
    }
    for (int block = 0; block < params.k_blocks; ++block, at.advance()) {
      shared.ring.wait_empty(at);
      shared.ring.full[at.stage].arrive_and_expect_tx(rows * kRowBytes);
      load_weight(params, shared, at.stage, block * kElements, tile);
      load_tokens(params, shared, at.stage, block * kElements, tile.token);
    }
  }
  // A block must not leave while another may still signal its barriers.
  for (int stage = 0; stage < kConfig.stages; ++stage, at.advance()) shared.ring.wait_empty(at);
}

}  // namespace quire::cuda::hopper
