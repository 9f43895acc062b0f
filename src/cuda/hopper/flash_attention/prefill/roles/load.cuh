// SPDX-License-Identifier: Apache-2.0
// Two warps: one takes tiles off the schedule, tells everybody, and loads q and the blocks of K; the
// other loads those of V. They run ahead of the consumers, across tiles. Each lane copies its own
// piece of a page: small pages come as fast as large ones only if two warps issue the copies.
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

  __device__ void load_keys() {
    PrefillSchedule<kConfig> schedule(params_);
    for (PrefillTile tile = schedule.next(); publish(tile);) {
      BlockPages pages = find_pages(tile, tile.end_block - 1);
      load_queries(tile);
      PrefillTile following{.sequence = -1};
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        load_block(params_.keys, kConfig.key_slabs(), pages);
        skip_values();
        if (block == tile.end_block - 1) following = schedule.next();
        if (block > tile.first_block) pages = find_pages(tile, block - 1);
      }
      tile = following;
    }
  }

  __device__ void load_values() {
    at_.advance();  // K0
    for (PrefillTile tile = next_tile(); tile.sequence >= 0; tile = next_tile()) {
      BlockPages pages = find_pages(tile, tile.end_block - 1);
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        at_.advance();  // the K block after this one
        load_block(params_.values, kConfig.value_slabs(), pages);
        if (block > tile.first_block) pages = find_pages(tile, block - 1);
      }
    }
  }

 private:
  static constexpr unsigned kWarp = 0xffffffff;
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  // K0 and K1 follow each other, then V and K take turns.
  __device__ void skip_values() {
    if (!is_first_block_) at_.advance();
    is_first_block_ = false;
  }

  // False at the end of the schedule, which everybody is told too.
  __device__ bool publish(const PrefillTile& tile) {
    shared_.tile_ring.wait_empty(tile_at_);
    if (lane() == 0) {
      shared_.tiles[tile_at_.stage] = tile;
      shared_.tile_ring.full[tile_at_.stage].arrive();
    }
    tile_at_.advance();
    return tile.sequence >= 0;
  }
  __device__ PrefillTile next_tile() {
    shared_.tile_ring.wait_full(tile_at_);
    const PrefillTile tile = shared_.tiles[tile_at_.stage];
    shared_.tile_ring.empty[tile_at_.stage].arrive();
    tile_at_.advance();
    return tile;
  }

  __device__ BlockPages find_pages(const PrefillTile& tile, int block) const {
    const PrefillPages& pages = params_.pages;
    const int piece = lane() % pieces_;
    const int key = block * kConfig.block_keys + piece * pages.box_rows;
    const int column = key / pages.page_size;
    BlockPages found{.page = pages.num_pages,
                     .row = key - column * pages.page_size,
                     .kv_head = tile.head_tile / params_.kv_head_tiles,
                     .holes = 0};
    const bool is_needed = key < tile.num_keys();
    if (is_needed && column < pages.max_pages) {
      const std::uint32_t id = pages.table[tile.sequence * pages.table_stride + column];
      if (id < static_cast<std::uint32_t>(pages.num_pages)) found.page = static_cast<int>(id);
    }
    const unsigned missing =
        __ballot_sync(kWarp, is_needed && found.page == pages.num_pages && lane() < pieces_);
    if (missing != 0) found.holes = hole_bits(missing);
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
    if (lane() == 0) {
      full.arrive_and_expect_tx(sizeof(shared_.q[0]));
      for (int slab = 0; slab < kConfig.key_slabs(); ++slab) {
        const BoxLoad load{.map = &params_.q,
                           .shared = &shared_.q[q_at_.stage][slab * shared_.kQuerySlabBytes],
                           .full = &full,
                           .hint = L2Hint::EVICT_FIRST};
        load_box(load, slab * PrefillConfig::kSlabColumns,
                 tile.head_tile << params_.tile_heads_log2, tile.first_row + tile.first_token);
      }
    }
    __syncwarp();
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
    if (lane() < pieces_) {
      std::byte* shared =
          &shared_.blocks[at_.stage][lane() * params_.pages.box_rows * kRowBytes];
      for (int slab = 0; slab < slabs; ++slab, shared += shared_.kSlabBytes) {
        load_box({.map = &map, .shared = shared, .full = &full, .hint = L2Hint::EVICT_LAST},
                 slab * PrefillConfig::kSlabColumns, pages.row, pages.kv_head, pages.page);
      }
    }
    __syncwarp();
    at_.advance();
  }

  const PrefillParams& params_;
  PrefillShared<kConfig>& shared_;
  const int pieces_;  // of a block, at most 16
  bool is_first_block_ = true;
  RingPosition<kConfig.stages> at_;
  RingPosition<PrefillConfig::kQueryBuffers> q_at_;
  RingPosition<PrefillShared<kConfig>::kTileRing> tile_at_;
};

}  // namespace quire::cuda::hopper
