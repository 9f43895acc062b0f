// SPDX-License-Identifier: Apache-2.0
// Two warps: one takes tiles off the schedule, tells everybody, and loads q and the blocks of K; the
// other loads those of V. They run ahead of the consumers, across tiles. Each lane copies its own
// piece of a page: small pages come as fast as large ones only if two warps issue the copies.
#pragma once

#include "cuda/hopper/flash_attention/prefill/shared.cuh"
#include "cuda/hopper/tile/block.cuh"
#include "cuda/hopper/tile/tma.cuh"

namespace quire::cuda::hopper {

// The page of this lane's piece of a block of keys.
struct PagePiece {
  std::uint32_t page;  // num_pages or more: none
  int row;             // of the page
  int kv_head;
  bool is_needed;  // begins before the sequence's end
};

template <PrefillConfig kConfig> class PrefillLoad {
 public:
  __device__ PrefillLoad(const PrefillParams& params, PrefillShared<kConfig>& shared)
      : params_(params), shared_(shared), pieces_(kConfig.block_keys / params.pages.box_rows) {}

  __device__ void load_keys() {
    PrefillSchedule<kConfig> schedule(params_);
    for (PrefillTile tile = schedule.next(); publish(tile);) {
      PagePiece piece = find_piece(tile, tile.end_block - 1);
      PrefillTile following{.sequence = -1};
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        const PagePiece next = find_piece(tile, block - 1);  // arrives while this one waits
        load_block(params_.keys, kConfig.key_slabs(), piece);
        if (++blocks_loaded_ >= 2) at_.advance();  // K0, K1, then V and K take turns
        if (block == tile.end_block - 1) {
          load_queries(tile);  // behind the keys: its place may be taken by the tile before
          following = schedule.next();
        }
        piece = next;
      }
      tile = following;
    }
  }

  __device__ void load_values() {
    at_.advance();  // K0
    for (PrefillTile tile = next_tile(); tile.sequence >= 0; tile = next_tile()) {
      PagePiece piece = find_piece(tile, tile.end_block - 1);
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        const PagePiece next = find_piece(tile, block - 1);
        at_.advance();  // a K block
        load_block(params_.values, kConfig.value_slabs(), piece);
        piece = next;
      }
    }
  }

 private:
  static constexpr unsigned kWarp = 0xffffffff;
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

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

  // Nothing here waits for the page table's answer.
  __device__ PagePiece find_piece(const PrefillTile& tile, int block) const {
    const PrefillPages& pages = params_.pages;
    const int key = block * kConfig.block_keys + lane() % pieces_ * pages.box_rows;
    const int column = key / pages.page_size;
    const bool is_needed = key >= 0 && key < tile.num_keys();
    PagePiece piece{.page = 0xffffffff,
                    .row = key - column * pages.page_size,
                    .kv_head = tile.head_tile / params_.kv_head_tiles,
                    .is_needed = is_needed};
    if (is_needed && column < pages.max_pages) {
      piece.page = pages.table[tile.sequence * pages.table_stride + column];
    }
    return piece;
  }
  // Bit g: keys 8g … 8g + 7 of the block have no page.
  __device__ std::uint32_t find_holes(const PagePiece& piece) const {
    const bool is_hole = piece.is_needed && piece.page >= num_pages();
    const unsigned missing = __ballot_sync(kWarp, is_hole && lane() < pieces_);
    return missing == 0 ? 0 : hole_bits(missing);
  }
  __device__ std::uint32_t num_pages() const {
    return static_cast<std::uint32_t>(params_.pages.num_pages);
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
  __device__ void load_block(const TensorMap& map, int slabs, const PagePiece& piece) {
    const std::uint32_t holes = find_holes(piece);
    shared_.ring.wait_empty(at_);
    FullBarrier& full = shared_.ring.full[at_.stage];
    if (lane() == 0) {
      shared_.holes[at_.stage] = holes;
      full.arrive_and_expect_tx(slabs * shared_.kSlabBytes);
    }
    __syncwarp();
    if (lane() < pieces_) {
      const auto page = static_cast<int>(piece.page < num_pages() ? piece.page : num_pages());
      std::byte* shared = &shared_.blocks[at_.stage][lane() * params_.pages.box_rows * kRowBytes];
      for (int slab = 0; slab < slabs; ++slab, shared += shared_.kSlabBytes) {
        load_box({.map = &map, .shared = shared, .full = &full, .hint = L2Hint::EVICT_LAST},
                 slab * PrefillConfig::kSlabColumns, piece.row, piece.kv_head, page);
      }
    }
    __syncwarp();
    at_.advance();
  }

  const PrefillParams& params_;
  PrefillShared<kConfig>& shared_;
  const int pieces_;  // of a block, at most 16
  int blocks_loaded_ = 0;
  RingPosition<kConfig.stages> at_;
  RingPosition<kConfig.q_buffers> q_at_;
  RingPosition<PrefillShared<kConfig>::kTileRing> tile_at_;
};

}  // namespace quire::cuda::hopper
