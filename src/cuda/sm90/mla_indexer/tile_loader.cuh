// SPDX-License-Identifier: Apache-2.0
// A loading warp: key tiles of one warpgroup of scorers, with their scales, into every kWarpgroups-th stage
// of a ring. Shared has `ring`, `tiles`, `key_scales` and `marks` (shared.cuh).
#pragma once

#include "cuda/common/pipeline/tma.cuh"
#include "cuda/sm90/mla_indexer/shared.cuh"
#include "cuda/sm90/mla_indexer/turn.cuh"

namespace quire::cuda::sm90::mla_indexer {

template <IndexConfig kConfig, typename Shared> class TileLoader {
 public:
  // A lane's box of a run: the tiles of 32 boxes, found at once.
  struct Box {
    std::uint32_t key_page;    // num_pages or more: none
    std::uint32_t scale_page;  // the same
    int row;                   // of the page
    int tile;
  };

  __device__ TileLoader(const IndexParams& params, Shared& shared, int warpgroup)
      : params_(params), shared_(shared), boxes_(kIndexTileKeys / params.pages.box_rows) {
    at_.stage = warpgroup;
  }

  __device__ int boxes() const { return boxes_; }  // of a tile, at most 4
  __device__ int run_tiles() const { return 32 / boxes_; }
  // The tile of a run that a lane finds a box of.
  __device__ int lane_tile() const { return lane() / boxes_; }

  // Of the lane's tile. Nothing here waits for the page table's answer.
  __device__ Box find_box(int tile, int sequence, int num_keys) const {
    const IndexPages& pages = params_.pages;
    const int key = tile * kIndexTileKeys + lane() % boxes_ * pages.box_rows;
    const int column = key / pages.page_size;
    Box box = no_box(tile);
    box.row = key - column * pages.page_size;
    if (key >= num_keys || column >= pages.max_pages) return box;
    box.key_page = pages.table[sequence * pages.table_stride + column];
    box.scale_page = pages.scale_table[sequence * pages.scale_table_stride + column];
    return box;
  }

  // The lane's box, none where its keys are beyond `num_keys`.
  __device__ Box cut_box(const Box& box, int num_keys) const {
    const int key = box.tile * kIndexTileKeys + lane() % boxes_ * params_.pages.box_rows;
    return key < num_keys ? box : no_box(box.tile);
  }

  // Bit l: lane l's box has a page.
  __device__ unsigned mapped_boxes(const Box& box) const {
    return __ballot_sync(kWholeWarp, box.key_page < num_pages());
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
               0, box.row, static_cast<int>(min(box.key_page, num_pages())));
      load_box({.map = &params_.key_scales,
                .shared = &shared_.key_scales[at_.phase][at_.stage][index * box_scales(box_rows)],
                .full = &full},
               box.row, static_cast<int>(min(box.scale_page, num_scale_pages())));
    }
    __syncwarp();
    advance_by_turn(at_);
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  __device__ std::uint32_t num_pages() const {
    return static_cast<std::uint32_t>(params_.pages.num_pages);
  }
  __device__ std::uint32_t num_scale_pages() const {
    return static_cast<std::uint32_t>(params_.pages.num_scale_pages);
  }
  __device__ Box no_box(int tile) const {
    return {.key_page = num_pages(), .scale_page = num_scale_pages(), .row = 0, .tile = tile};
  }

  // Bit g: keys 16g … 16g + 15 of a tile have a page. Of its boxes' bits.
  __device__ unsigned groups_of(unsigned boxes) const {
    if (boxes_ == 4) return boxes & 15;
    if (boxes_ == 2) return (boxes & 1) * 3 + (boxes >> 1 & 1) * 12;
    return (boxes & 1) * 15;
  }

  const IndexParams& params_;
  Shared& shared_;
  const int boxes_;
  RingPosition<kConfig.stages> at_;
};

}  // namespace quire::cuda::sm90::mla_indexer
