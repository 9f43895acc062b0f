// SPDX-License-Identifier: Apache-2.0
// One warp: walks the cluster's part of the work and has the copy engine bring tiles of keys, a quarter
// of the columns at a time, as soon as both blocks' values of the tile before last are done with it.
// Every slab is brought by one of the blocks, for both.
#pragma once

#include "cuda/hopper/flash_attention/decode/find_work.cuh"
#include "cuda/hopper/mla_decode/many_rows/shared.cuh"
#include "cuda/hopper/mla_decode/params.h"
#include "cuda/hopper/mla_decode/roles/describe_item.cuh"
#include "cuda/hopper/tile/tma.cuh"

namespace quire::cuda::hopper {

class LoadTiles {
 public:
  __device__ LoadTiles(const MlaDecodeParams& params, ManyRowsShared& shared, int rank)
      : params_(params),
        shared_(shared),
        rank_(rank),
        pieces_(ManyRows::kKeys / params.pages.box_rows) {}

  // `cluster`: whose part.
  __device__ void run(int cluster) {
    if (lane() == 0) prefetch(params_.latents);
    WorkWalk walk = start_walk(params_, cut_batch(params_), cluster);
    for (WorkPiece piece; walk.next(piece);) {
      const SequenceWork& work = walk.work();
      publish(describe_item(params_.batch, work, piece));
      load_item(work, piece, walk.sequence());
    }
    publish({});
  }

 private:
  // This lane's piece of a tile.
  struct Piece {
    unsigned page;  // num_pages: none, and the copy engine writes zeros
    int row;        // of the page
  };

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  __device__ void publish(const LatentItem& item) {
    if (lane() == 0) {
      shared_.item_ring.wait_empty(item_at_);
      shared_.items[item_at_.stage] = item;
      shared_.item_ring.full[item_at_.stage].arrive();
    }
    __syncwarp();
    item_at_.advance();
  }

  __device__ Piece find(const std::uint32_t* table, int key, int end) const {
    const LatentPages& pages = params_.pages;
    const int column = key / pages.page_size;
    unsigned page = pages.num_pages;
    if (key < end && column < pages.max_pages) page = min(table[column], pages.num_pages);
    return {.page = page, .row = key - column * pages.page_size};
  }

  __device__ void load_item(const SequenceWork& work, const WorkPiece& piece, int sequence) {
    const std::uint32_t* table = params_.pages.table + sequence * params_.pages.table_stride;
    const int end = work.num_keys();
    int key =
        (work.first_block + piece.begin) * kBlockKeys + lane() % pieces_ * params_.pages.box_rows;
    Piece now = find(table, key, end);
    for (int tile = piece.begin; tile < piece.end; ++tile, ++tile_) {
      key += kBlockKeys;
      const Piece next = find(table, key, end);  // arrives while this one waits
#pragma unroll 1
      for (int turn = 0; turn < ManyRows::kQuarters; ++turn) load_quarter(now, quarter_of(turn));
      now = next;
    }
  }

  __device__ void load_quarter(const Piece& piece, int quarter) {
    const int stage = stage_of(tile_);
    const int slabs = ManyRows::kQuarterSlabs + (quarter == 0 ? 1 : 0);
    const unsigned missing =
        __ballot_sync(kWholeWarp, piece.page >= params_.pages.num_pages && lane() < pieces_);
    shared_.empty[stage][quarter].wait(phase_of(tile_) ^ 1);
    FullBarrier& full = shared_.full[stage][quarter];
    if (lane() == 0) {
      if (quarter == 0) shared_.valid[stage] = valid_bits(missing);
      full.arrive_and_expect_tx(slabs * ManyRows::kSlabBytes);
    }
    __syncwarp();
    if (lane() < pieces_) {
      load_slab(piece, ManyRows::kQuarterSlabs * quarter + rank_, full);
      // The blocks bring the odd slab in turn.
      if (quarter == 0 && (tile_ & 1) == rank_) load_slab(piece, ManyRows::kRopeSlab, full);
    }
    __syncwarp();
  }

  __device__ void load_slab(const Piece& piece, int slab, FullBarrier& full) {
    constexpr std::uint16_t kBoth = 3;
    const int row = lane() * params_.pages.box_rows;
    load_box_for({.map = &params_.latents,
                  .shared = &shared_.stages[stage_of(tile_)][slab][row * kRowBytes],
                  .full = &full,
                  .hint = L2Hint::EVICT_FIRST},
                 slab * ManyRows::kSlabColumns, piece.row, static_cast<int>(piece.page), kBoth);
  }

  // The same as load_box_for (tile/tma.cuh) in three dimensions.
  __device__ static void load_box_for(const BoxLoad& load, int column, int row, int page,
                                      std::uint16_t blocks) {
    cute::SM90_TMA_LOAD_MULTICAST_3D::copy(load.map, load.barrier(), blocks,
                                           static_cast<std::uint64_t>(load.hint), load.shared,
                                           column, row, page);
  }

  __device__ std::uint64_t valid_bits(unsigned missing) const {
    std::uint64_t bits = ~std::uint64_t{0};
    const int rows = params_.pages.box_rows;
    for (int piece = 0; missing != 0; ++piece, missing >>= 1) {
      if ((missing & 1) != 0) bits &= ~((~std::uint64_t{0} >> (64 - rows)) << (piece * rows));
    }
    return bits;
  }

  const MlaDecodeParams& params_;
  ManyRowsShared& shared_;
  const int rank_;
  const int pieces_;  // of a tile, at most 4
  int tile_ = 0;
  RingPosition<ManyRows::kItems> item_at_;
};

}  // namespace quire::cuda::hopper
