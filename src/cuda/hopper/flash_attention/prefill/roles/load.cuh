// SPDX-License-Identifier: Apache-2.0
// One warp: takes tiles off the schedule and keeps q and the ring of K and V blocks full, running
// ahead of the consumers across tiles. Each lane copies its own piece of a page.
#pragma once

#include "cuda/hopper/flash_attention/prefill/shared.cuh"
#include "cuda/hopper/tile/block.cuh"
#include "cuda/hopper/tile/tma.cuh"

namespace quire::cuda::hopper {

// The pages of one block of keys: this lane's piece, and which pieces have no page.
struct BlockPages {
  int page;  // num_pages: read as zeros
  int row;   // in the page
  int kv_head;
  std::uint32_t holes;
};

template <PrefillConfig kConfig> class PrefillLoad {
 public:
  __device__ PrefillLoad(const PrefillParams& params, PrefillShared<kConfig>& shared)
      : params_(params), shared_(shared), pieces_(kConfig.block_keys / params.pages.box_rows) {}

  __device__ void run() {
    PrefillSchedule<kConfig> schedule(params_);
    BlockPages previous;
    bool has_previous = false;
    for (PrefillTile tile = schedule.next(); publish(tile);) {
      BlockPages pages = find_pages(tile, tile.end_block - 1);
      load_queries(tile);
      PrefillTile following{.sequence = -1};
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        load_block(params_.keys, kConfig.key_slabs(), pages);
        if (has_previous) load_block(params_.values, kConfig.value_slabs(), previous);
        previous = pages;
        has_previous = true;
        if (block == tile.end_block - 1) following = schedule.next();
        if (block > tile.first_block) pages = find_pages(tile, block - 1);
      }
      tile = following;
    }
    if (has_previous) load_block(params_.values, kConfig.value_slabs(), previous);
  }

 private:
  static constexpr unsigned kWarp = 0xffffffff;
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  // False at the end of the schedule, which the consumers are told too.
  __device__ bool publish(const PrefillTile& tile) {
    shared_.tile_ring.wait_empty(tile_at_);
    if (lane() == 0) {
      shared_.tiles[tile_at_.stage] = tile;
      shared_.tile_ring.full[tile_at_.stage].arrive();
    }
    tile_at_.advance();
    return tile.sequence >= 0;
  }

  __device__ BlockPages find_pages(const PrefillTile& tile, int block) const {
    const PrefillPages& pages = params_.pages;
    const int piece = lane() % pieces_;
    const int key = block * kConfig.block_keys + piece * pages.box_rows;
    const int column = key / pages.page_size;
    BlockPages found{.page = pages.num_pages,
                     .row = key - column * pages.page_size,
                     .kv_head = tile.head_tile / params_.kv_head_tiles};
    const bool is_needed = key < tile.num_keys();
    if (is_needed && column < pages.max_pages) {
      const std::uint32_t id = pages.table[tile.sequence * pages.table_stride + column];
      if (id < static_cast<std::uint32_t>(pages.num_pages)) found.page = static_cast<int>(id);
    }
    const unsigned missing =
        __ballot_sync(kWarp, is_needed && found.page == pages.num_pages && lane() < pieces_);
    found.holes = missing == 0 ? 0 : hole_bits(missing);
    return found;
  }
  __device__ std::uint32_t hole_bits(unsigned missing) const {
    const int groups = params_.pages.box_rows / 8;
    const std::uint32_t piece_bits = (1U << groups) - 1;
    std::uint32_t bits = 0;
    for (int piece = 0; piece < pieces_; ++piece) {
      if ((missing >> piece & 1) != 0) bits |= piece_bits << (piece * groups);
    }
    return bits;
  }

  __device__ void load_queries(const PrefillTile& tile) {
    shared_.q_ring.wait_empty(q_at_);
    FullBarrier& full = shared_.q_ring.full[q_at_.stage];
    if (lane() == 0) full.arrive_and_expect_tx(sizeof(shared_.q[0]));
    __syncwarp();
    if (lane() < kConfig.key_slabs()) {
      const BoxLoad load{.map = &params_.q,
                         .shared = &shared_.q[q_at_.stage][lane() * shared_.kQuerySlabBytes],
                         .full = &full,
                         .hint = L2Hint::EVICT_FIRST};
      load_box(load, lane() * PrefillConfig::kSlabColumns,
               tile.head_tile << params_.tile_heads_log2, tile.first_row + tile.first_token);
    }
    q_at_.advance();
  }

  // A K or a V block. A page that is not there lies outside the map: the copy writes zeros, and the
  // bytes to wait for are always the same.
  __device__ void load_block(const TensorMap& map, int slabs, const BlockPages& pages) {
    shared_.ring.wait_empty(at_);
    FullBarrier& full = shared_.ring.full[at_.stage];
    if (lane() == 0) {
      shared_.holes[at_.stage] = pages.holes;
      full.arrive_and_expect_tx(slabs * shared_.kSlabBytes);
    }
    __syncwarp();
    const int piece = lane() % pieces_;
    for (int slab = lane() / pieces_; slab < slabs; slab += 32 / pieces_) {
      std::byte* shared = &shared_.blocks[at_.stage][slab * shared_.kSlabBytes +
                                                     piece * params_.pages.box_rows * kRowBytes];
      load_box({.map = &map, .shared = shared, .full = &full, .hint = L2Hint::EVICT_LAST},
               slab * PrefillConfig::kSlabColumns, pages.row, pages.kv_head, pages.page);
    }
    at_.advance();
  }

  const PrefillParams& params_;
  PrefillShared<kConfig>& shared_;
  const int pieces_;  // of a block, at most 16
  RingPosition<kConfig.stages> at_;
  RingPosition<PrefillConfig::kQueryBuffers> q_at_;
  RingPosition<PrefillShared<kConfig>::kTileRing> tile_at_;
};

}  // namespace quire::cuda::hopper
