// SPDX-License-Identifier: Apache-2.0
// The warp that takes tiles off the schedule, tells the consumers, and loads q, K and V, blocks that
// lie in one piece: V a block behind K, as products come to need them, across tiles.
#pragma once

#include "cuda/common/prefill_attention/schedule.cuh"
#include "cuda/sm90/flash_attention/prefill/dequantized/dequantized_source.cuh"

namespace quire::cuda::sm90::flash_attention {

template <PrefillConfig kConfig> class LoadDequantized {
 public:
  using Shared = PrefillShared<kConfig>;
  using Source = DequantizedSource<kConfig>;
  using Piece = typename Source::Piece;

  __device__ LoadDequantized(const PrefillParams& params, const DequantizedKeys& keys,
                             Shared& shared)
      : params_(params), source_(keys, 0), shared_(shared) {}

  __device__ void run() {
    PrefillSchedule<kConfig> schedule(params_);
    for (PrefillTile tile = schedule.next(); publish(tile);) {
      PrefillTile following{.sequence = -1};
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        const Piece piece = source_.find(tile, block);
        load_keys(piece);
        if (block == tile.end_block - 1) {
          load_queries(tile);
          following = schedule.next();
        }
        load_values(piece);
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

  __device__ void load_keys(const Piece& piece) {
    const std::uint32_t holes = source_.holes(piece);
    shared_.key_ring.wait_empty(key_at_);
    FullBarrier& full = shared_.key_ring.full[key_at_.stage];
    if (lane() == 0) {
      shared_.holes[key_at_.stage] = holes;
      full.arrive_and_expect_tx(Shared::kCopiedKeyBytes);
    }
    __syncwarp();
    source_.load_keys(piece, shared_.keys[key_at_.stage], full);
    key_at_.advance();
  }
  __device__ void load_values(const Piece& piece) {
    shared_.value_ring.wait_empty(value_at_);
    FullBarrier& full = shared_.value_ring.full[value_at_.stage];
    if (lane() == 0) full.arrive_and_expect_tx(Shared::kCopiedValueBytes);
    __syncwarp();
    source_.load_values(piece, shared_.values[value_at_.stage], full);
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
