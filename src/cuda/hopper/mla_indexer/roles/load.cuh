// SPDX-License-Identifier: Apache-2.0
// A warp for each warpgroup of scorers, as one warp alone would not keep up with them: it loads that
// warpgroup's tiles, across pieces.
#pragma once

#include "cuda/hopper/mla_indexer/sample.h"
#include "cuda/hopper/mla_indexer/shared.cuh"
#include "cuda/hopper/tile/tma.cuh"

namespace quire::cuda::hopper {

template <IndexConfig kConfig> class IndexLoad {
 public:
  __device__ IndexLoad(const IndexParams& params, IndexShared<kConfig>& shared, int warpgroup)
      : params_(params),
        shared_(shared),
        boxes_(kIndexTileKeys / params.pages.box_rows),
        next_(warpgroup) {
    at_.stage = warpgroup;
  }

  __device__ void run() {
    int begin = 0;  // tiles of the pieces before
    for (RingPosition<IndexShared<kConfig>::kPieces> at;; at.advance()) {
      shared_.piece_ring.wait_full(at);
      __syncwarp();  // keeps reads behind the wait
      const Piece piece = shared_.pieces[at.stage];
      if (piece.first_token < 0) return;
      __syncwarp();
      if (lane() == 0) shared_.piece_ring.empty[at.stage].arrive();
      load_tiles(piece, begin);
      begin += piece.tiles();
    }
  }

 private:
  using Piece = IndexPiece<kConfig.tokens>;
  static constexpr int kStep = IndexConfig::kWarpgroups;

  // A lane's box of the next 32: a run of tiles. Whatever a tile's copies need is found for the whole
  // run at once.
  struct Box {
    int key_page;    // num_pages: none
    int scale_page;  // the same
    int row;         // of the page
    int tile;
  };

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  __device__ void load_tiles(const Piece& piece, int begin) {
    const int run = 32 / boxes_;  // tiles
    const int end = begin + piece.tiles();
    Box box = find_box(piece, next_ - begin);
    while (next_ < end) {
      const Box next =
          find_box(piece, next_ - begin + run * kStep);  // arrives while this run waits
      const unsigned mapped = __ballot_sync(kWholeWarp, box.key_page < params_.pages.num_pages);
      const int last = min(next_ + run * kStep, end);
      for (int first = 0; next_ < last; next_ += kStep, first += boxes_) {
        load_tile(first, mapped, box);
      }
      box = next;
    }
  }

  // Of the run that begins with the first-th tile of the piece. Nothing here waits for the page table's answer.
  __device__ Box find_box(const Piece& piece, int first) const {
    const IndexPages& pages = params_.pages;
    const int tile = piece.first_tile +
                     tile_in_order(first + lane() / boxes_ * kStep, piece.tiles(), piece.stride);
    const int key = tile * kIndexTileKeys + lane() % boxes_ * pages.box_rows;
    const int column = key / pages.page_size;
    Box box{.key_page = pages.num_pages,
            .scale_page = pages.num_scale_pages,
            .row = key - column * pages.page_size,
            .tile = tile};
    if (key >= piece.num_keys || column >= pages.max_pages) return box;
    const std::uint32_t key_page = pages.table[piece.sequence * pages.table_stride + column];
    const std::uint32_t scale_page =
        pages.scale_table[piece.sequence * pages.scale_table_stride + column];
    box.key_page = static_cast<int>(min(key_page, static_cast<std::uint32_t>(pages.num_pages)));
    box.scale_page =
        static_cast<int>(min(scale_page, static_cast<std::uint32_t>(pages.num_scale_pages)));
    return box;
  }

  // The tile whose boxes are the lanes' from first_lane on. A page that is not there lies outside the
  // map: the copy writes zeros, and the bytes to wait for are always the same.
  __device__ void load_tile(int first_lane, unsigned mapped, const Box& box) {
    shared_.ring.wait_empty(at_);
    __syncwarp();
    FullBarrier& full = shared_.ring.full[at_.stage];
    const int index = lane() - first_lane;
    if (index == 0) {
      shared_.marks[at_.phase][at_.stage] = TileMark::of(box.tile, groups_of(mapped >> first_lane));
      full.arrive_and_expect_tx(kConfig.tile_bytes() + kIndexTileKeys * sizeof(float));
    }
    __syncwarp();
    if (index >= 0 && index < boxes_) {
      const int box_rows = params_.pages.box_rows;
      load_box({.map = &params_.keys,
                .shared = &shared_.tiles[at_.stage][index * box_rows * kConfig.dims],
                .full = &full},
               0, box.row, box.key_page);
      load_box({.map = &params_.key_scales,
                .shared = &shared_.key_scales[at_.phase][at_.stage][index * box_scales(box_rows)],
                .full = &full},
               box.row, box.scale_page);
    }
    __syncwarp();
    at_.stage += kStep;
    if (at_.stage >= kConfig.stages) {
      at_.stage -= kConfig.stages;
      at_.phase ^= 1;
    }
  }

  // Bit g: keys 16g … 16g + 15 of a tile have a page. Of its boxes' bits.
  __device__ unsigned groups_of(unsigned boxes) const {
    if (boxes_ == 4) return boxes & 15;
    if (boxes_ == 2) return (boxes & 1) * 3 + (boxes >> 1 & 1) * 12;
    return (boxes & 1) * 15;
  }

  const IndexParams& params_;
  IndexShared<kConfig>& shared_;
  const int boxes_;  // of a tile, at most 4
  int next_;         // tile
  RingPosition<kConfig.stages> at_;
};

}  // namespace quire::cuda::hopper
