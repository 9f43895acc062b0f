// SPDX-License-Identifier: Apache-2.0
// One thread: keeps the ring full of token and weight tiles. What the blocks of a cluster share is
// fetched in parts, one by each block for all of them.
#pragma once

#include "cuda/common/matmul/shared.cuh"
#include "cuda/common/matmul/tile_position.cuh"
#include "cuda/common/mma/row_order.h"
#include "cuda/common/pipeline/tma.cuh"

namespace quire::cuda {

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

// Of a tile of kColumns columns: tile_n or tail_n.
template <int kColumns, TileConfig kConfig>
__device__ void load_weight(const TileParams& params, TileShared<kConfig>& shared, int stage, int k,
                            const TilePosition& tile) {
  constexpr int kBoxGroups = kConfig.box_groups(kColumns);
  constexpr int kBoxes = kColumns / kGroupRows / kBoxGroups;
  constexpr std::uint16_t kEveryBlock = (1 << kConfig.cluster) - 1;
  const int rank = rank_in_cluster<kConfig.cluster>();
#pragma unroll
  for (int box = 0; box < kBoxes; ++box) {
    if (kConfig.weight_sharers() > 1 && box % kConfig.weight_sharers() != rank) continue;
    const int group = box * kBoxGroups;
    const BoxLoad load{
        .map = kColumns == kConfig.tile_n ? &params.weight : &params.tail_weight,
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

// The next kBlocks blocks of K from `block` on: their weights in a row, then their tokens.
template <int kColumns, int kBlocks, TileConfig kConfig>
__device__ __forceinline__ void send_for(const TileParams& params, TileShared<kConfig>& shared,
                                         RingPosition<kConfig.stages>& at, const TilePosition& tile,
                                         int block, int bytes) {
  constexpr int kElements = kRowBytes * 8 / bits(kConfig.dtype);  // of K in a block
  int stages[kBlocks];
#pragma unroll
  for (int& stage : stages) {
    shared.ring.wait_empty(at);
    stage = at.stage;
    shared.ring.full[stage].arrive_and_expect_tx(bytes);
    at.advance();
  }
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    load_weight<kColumns>(params, shared, stages[i], (block + i) * kElements, tile);
  }
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    load_tokens(params, shared, stages[i], (block + i) * kElements, tile.token);
  }
}

// While the kernel before this one may still run: the first weights, and behind that one's end their tokens. Returns
// the number of blocks of K.
template <TileConfig kConfig>
__device__ int send_early(const TileParams& params, TileShared<kConfig>& shared,
                          RingPosition<kConfig.stages>& at, const TilePosition& tile, int bytes) {
  constexpr int kElements = kRowBytes * 8 / bits(kConfig.dtype);
  const int blocks = min(min(params.early_blocks, kConfig.stages), params.k_blocks);
#pragma unroll 1
  for (int block = 0; block < blocks; ++block) {
    shared.ring.full[block].arrive_and_expect_tx(bytes);
    load_weight<kConfig.tile_n>(params, shared, block, block * kElements, tile);
  }
  cudaGridDependencySynchronize();
#pragma unroll 1
  for (int block = 0; block < blocks; ++block, at.advance()) {
    load_tokens(params, shared, block, block * kElements, tile.token);
  }
  return blocks;
}

// All of kColumns columns; the first of a launch is whole. (Not asked for each block of K: this thread has no time.)
template <int kColumns, TileConfig kConfig>
__device__ __forceinline__ void load_tiles(const TileParams& params, TileShared<kConfig>& shared,
                                           RingPosition<kConfig.stages>& at,
                                           TilePositions<kConfig>& positions) {
  constexpr int kSent = kConfig.blocks_sent;
  const int bytes = (params.box_tokens * kConfig.token_sharers() + kColumns) * kRowBytes;
  bool is_early = kColumns == kConfig.tile_n && params.early_blocks > 0;
  for (TilePosition tile; positions.template next_of<kColumns>(tile); is_early = false) {
    int block = is_early ? send_early(params, shared, at, tile, bytes) : 0;
    for (; block + kSent <= params.k_blocks; block += kSent) {
      send_for<kColumns, kSent>(params, shared, at, tile, block, bytes);
    }
    if constexpr (kSent > 1) {
      for (; block < params.k_blocks; ++block) {
        send_for<kColumns, 1>(params, shared, at, tile, block, bytes);
      }
    }
  }
}

template <TileConfig kConfig>
__device__ void load_role(const TileParams& params, TileShared<kConfig>& shared) {
  RingPosition<kConfig.stages> at;
  TilePositions<kConfig> positions(params);
  load_tiles<kConfig.tile_n>(params, shared, at, positions);
  if constexpr (kConfig.has_tail()) load_tiles<kConfig.tail_n>(params, shared, at, positions);
  // A block must not leave while another may still signal its barriers.
  for (int stage = 0; stage < kConfig.stages; ++stage, at.advance()) shared.ring.wait_empty(at);
}

}  // namespace quire::cuda
