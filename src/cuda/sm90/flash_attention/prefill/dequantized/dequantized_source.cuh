// SPDX-License-Identifier: Apache-2.0
// Blocks of keys and values out of the workspace, as soon as the warps that dequantize them are done:
// what the load role asks of a source stands in prefill/kernel.cuh. One warp loads a whole block.
#pragma once

#include <cstdint>

#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/prefill_attention/schedule.cuh"
#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/flash_attention/prefill/launch_prefill.h"

namespace quire::cuda::sm90::flash_attention {

// How far a block of keys is: a word that the warps which dequantize it add to, a quarter of its rows each,
// and which those that load it wait for. Rows are written by threads and read by TMA:
// both sides put a fence between the two.
//
//   bits 0 – 7    quarters that are there
//   bits 8 – 23   bit g: keys 8g … 8g + 7 have no page

inline constexpr int kBlockQuarters = 4;

// By a whole warp, its rows of K and V written. `missing`: a bit for each 8 of the quarter's 32 keys.
__device__ inline void finish_quarter(std::uint32_t* keys, std::uint32_t* values, int quarter,
                                      std::uint32_t missing) {
  asm volatile("fence.proxy.async.global;" ::: "memory");
  __syncwarp();
  const std::uint32_t word = 1U | missing << (8 + kBlockQuarters * quarter);
  if (threadIdx.x % 32 == 0) add_released(keys, word);
  if (threadIdx.x % 32 == 1) add_released(values, word);
}

// By a whole warp. Bit g: keys 8g … 8g + 7 of the block have no page.
__device__ inline std::uint32_t await_block(const std::uint32_t* state) {
  std::uint32_t word;
  do {
    word = load_acquired(state);
  } while ((word & 0xff) != kBlockQuarters);
  asm volatile("fence.proxy.async.global;" ::: "memory");
  return word >> 8;
}

template <PrefillConfig kConfig> class DequantizedSource {
 public:
  using Params = DequantizedKeys;
  static_assert(kConfig.block_keys == kDequantizedKeys);

  struct BlockPart {
    int place;  // of the block; behind the last one: there is none
  };

  __device__ DequantizedSource(const DequantizedKeys& params, int) : params_(params) {}

  __device__ static void prefetch(const DequantizedKeys& params) {
    cuda::prefetch(params.keys);
    cuda::prefetch(params.values);
  }

  __device__ BlockPart find(const PrefillTile& tile, int block) const {
    const bool is_there = block >= 0 && block < params_.blocks;
    return {is_there ? params_.place(tile.sequence, tile.kv_head, block) : params_.side_blocks};
  }

  __device__ std::uint32_t holes(const BlockPart& part) const {
    constexpr std::uint32_t kAll = (1U << kDequantizedKeys / 8) - 1;
    return is_there(part) ? await_block(params_.states + part.place) : kAll;
  }

  __device__ void load_keys(const BlockPart& part, std::byte* stage, FullBarrier& full) const {
    load<kConfig.key_swizzle_columns()>(params_.keys, part, stage, full);
  }
  __device__ void load_values(const BlockPart& part, std::byte* stage, FullBarrier& full) const {
    if (is_there(part)) await_block(params_.states + params_.side_blocks + part.place);
    load<kConfig.value_swizzle_columns()>(params_.values, part, stage, full);
  }

 private:
  __device__ bool is_there(const BlockPart& part) const { return part.place < params_.side_blocks; }

  // Behind the last block the map ends: the copy writes zeros.
  template <int kSwizzleColumns>
  __device__ void load(const TensorMap& map, const BlockPart& part, std::byte* stage,
                       FullBarrier& full) const {
    const auto swizzle_column = static_cast<int>(threadIdx.x % 32);
    if (swizzle_column < kSwizzleColumns) {
      const BoxLoad load{
          .map = &map,
          .shared = stage + swizzle_column * PrefillShared<kConfig>::kSwizzleColumnBytes,
          .full = &full,
          .hint = L2Hint::EVICT_LAST};
      load_box(load, swizzle_column * kConfig.copied_columns(), part.place * kDequantizedKeys);
    }
    __syncwarp();
  }

  const DequantizedKeys& params_;
};

// The warp that takes tiles off the schedule, tells the consumers, and loads q, K and V, blocks that
// are contiguous: V a block behind K, as products come to need them, across tiles.

template <PrefillConfig kConfig> class LoadDequantized {
 public:
  using Shared = PrefillShared<kConfig>;
  using Source = DequantizedSource<kConfig>;
  using BlockPart = typename Source::BlockPart;

  __device__ LoadDequantized(const PrefillParams& params, const DequantizedKeys& keys,
                             Shared& shared)
      : params_(params), source_(keys, 0), shared_(shared) {}

  __device__ void run() {
    PrefillSchedule<kConfig> schedule(params_);
    for (PrefillTile tile = schedule.next(); publish(tile);) {
      PrefillTile following{.sequence = -1};
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        const BlockPart part = source_.find(tile, block);
        load_keys(part);
        if (block == tile.end_block - 1) {
          load_queries(tile);
          following = schedule.next();
        }
        load_values(part);
      }
      tile = following;
    }
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  // False at the end of the schedule, which everybody is told too. What loads V has read it: that is
  // this warp.
  __device__ bool publish(const PrefillTile& tile) {
    shared_.tile_ring.wait_empty(tile_at_);
    if (lane() == 0) {
      shared_.tiles[tile_at_.stage] = tile;
      shared_.tile_ring.full[tile_at_.stage].arrive();
    }
    shared_.tile_ring.empty[tile_at_.stage].arrive();
    tile_at_.advance();
    return tile.sequence >= 0;
  }

  __device__ void load_queries(const PrefillTile& tile) {
    static_assert(kConfig.q_parts == 1);
    RingBarriers<kConfig.q_buffers>& ring = shared_.q_ring(0);
    ring.wait_empty(q_at_);
    FullBarrier& full = ring.full[q_at_.stage];
    if (lane() == 0) full.arrive_and_expect_tx(sizeof(shared_.q[0]));
    __syncwarp();
    if (lane() < kConfig.query_swizzle_columns()) {
      const BoxLoad load{
          .map = &params_.q,
          .shared = &shared_.q[q_at_.stage][lane() * Shared::kQuerySwizzleColumnBytes],
          .full = &full,
          .hint = L2Hint::EVICT_FIRST};
      load_box(load, lane() * PrefillConfig::kSwizzleColumnWidth,
               tile.head_tile << params_.tile_heads_log2, tile.first_row + tile.first_token);
    }
    __syncwarp();
    q_at_.advance();
  }

  __device__ void load_keys(const BlockPart& part) {
    const std::uint32_t holes = source_.holes(part);
    shared_.key_ring.wait_empty(key_at_);
    FullBarrier& full = shared_.key_ring.full[key_at_.stage];
    if (lane() == 0) {
      shared_.holes[key_at_.stage] = holes;
      full.arrive_and_expect_tx(Shared::kCopiedKeyBytes);
    }
    __syncwarp();
    source_.load_keys(part, shared_.keys[key_at_.stage], full);
    key_at_.advance();
  }
  __device__ void load_values(const BlockPart& part) {
    shared_.value_ring.wait_empty(value_at_);
    FullBarrier& full = shared_.value_ring.full[value_at_.stage];
    if (lane() == 0) full.arrive_and_expect_tx(Shared::kCopiedValueBytes);
    __syncwarp();
    source_.load_values(part, shared_.values[value_at_.stage], full);
    value_at_.advance();
  }

  const PrefillParams& params_;
  const Source source_;
  Shared& shared_;
  RingPosition<kConfig.key_stages> key_at_;
  RingPosition<kConfig.value_stages> value_at_;
  RingPosition<kConfig.q_buffers> q_at_;
  RingPosition<Shared::kTileRing> tile_at_;
};

}  // namespace quire::cuda::sm90::flash_attention
