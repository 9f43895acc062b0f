// SPDX-License-Identifier: Apache-2.0
// One warp: walks the cluster's part of the work, and has the copy engine keep the ring full of this
// block's half of the rows across the borders of items. Each lane names the boxes of its own piece of
// a page. Unlike copies by threads, it leaves the shared-memory pipe to the warps that multiply.
#pragma once

#include "cuda/hopper/latent_attention/load_queries.cuh"
#include "cuda/hopper/mla_decode/roles/publish_items.cuh"
#include "cuda/hopper/mla_decode/touch_lengths.cuh"
#include "cuda/hopper/tile/tma.cuh"

namespace quire::cuda::hopper {

template <LatentConfig kConfig> class BoxRows {
 public:
  __device__ BoxRows(const MlaDecodeParams& params, LatentShared<kConfig>& shared, int rank)
      : params_(params),
        shared_(shared),
        rank_(rank),
        pieces_(LatentConfig::kKeys / params.pages.box_rows),
        items_(shared, lane() == 0) {}

  // `cluster`: whose part.
  __device__ void run(int cluster) {
    touch_lengths(params_.batch);
    if (lane() == 0) {
      prefetch(params_.latents);
      prefetch(params_.tails);
    }
    WorkWalk walk = start_walk(params_, cut_batch(params_), cluster);
    for (WorkPiece piece; walk.next(piece);) {
      const SequenceWork& work = walk.work();
      const LatentItem item = describe_item(params_.batch, work, piece);
      for (int row = lane(); row < kConfig.rows() && rank_ == 0; row += 32) {
        prefetch_query(params_.attend, item, row);
      }
      items_.publish(item);
      load_tiles(work, piece, walk.sequence());
    }
    items_.publish({});
  }

 private:
  // This lane's piece of a tile.
  struct Piece {
    unsigned page;  // num_pages: none, and the copy engine writes zeros
    int row;        // of the page
  };

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  __device__ Piece find(const std::uint32_t* table, int key, int end) const {
    const LatentPages& pages = params_.pages;
    const int column = key / pages.page_size;
    unsigned page = pages.num_pages;
    if (key < end && column < pages.max_pages) page = min(table[column], pages.num_pages);
    return {.page = page, .row = key - column * pages.page_size};
  }

  __device__ void load_tiles(const SequenceWork& work, const WorkPiece& piece, int sequence) {
    const std::uint32_t* table = params_.pages.table + sequence * params_.pages.table_stride;
    const int end = work.num_keys();
    int key =
        (work.first_block + piece.begin) * kBlockKeys + lane() % pieces_ * params_.pages.box_rows;
    Piece now = find(table, key, end);
    for (int tile = piece.begin; tile < piece.end; ++tile, at_.advance()) {
      key += kBlockKeys;
      const Piece next = find(table, key, end);  // arrives while this one waits
      load_tile(now);
      now = next;
    }
  }

  __device__ void load_tile(const Piece& piece) {
    const unsigned missing =
        __ballot_sync(kWholeWarp, piece.page >= params_.pages.num_pages && lane() < pieces_);
    shared_.ring.wait_empty(at_);
    FullBarrier& full = shared_.ring.full[at_.stage];
    if (lane() == 0) {
      shared_.set_valid_keys(at_.stage, valid_bits(missing));
      full.arrive_and_expect_tx(sizeof(LatentStage));
    }
    __syncwarp();
    if (lane() < pieces_) load_piece(piece, full);
    __syncwarp();
  }

  __device__ std::uint64_t valid_bits(unsigned missing) const {
    std::uint64_t bits = ~std::uint64_t{0};
    const int rows = params_.pages.box_rows;
    for (int piece = 0; missing != 0; ++piece, missing >>= 1) {
      if ((missing & 1) != 0) bits &= ~((~std::uint64_t{0} >> (64 - rows)) << (piece * rows));
    }
    return bits;
  }

  __device__ void load_piece(const Piece& piece, FullBarrier& full) {
    LatentStage& stage = shared_.stages[at_.stage];
    const int row = lane() * params_.pages.box_rows;
    const auto page = static_cast<int>(piece.page);
#pragma unroll
    for (int slab = 0; slab < LatentConfig::kSlabs; ++slab) {
      load_box({.map = &params_.latents,
                .shared = &stage.slabs[slab][row * kRowBytes],
                .full = &full,
                .hint = L2Hint::EVICT_FIRST},
               rank_ * LatentConfig::kColumns + slab * LatentConfig::kSlabColumns, piece.row, page);
    }
    load_box({.map = &params_.tails,
              .shared = &stage.tail[row * LatentConfig::kTailBytes],
              .full = &full,
              .hint = L2Hint::EVICT_FIRST},
             LatentConfig::kLatent + rank_ * LatentConfig::kTailColumns, piece.row, page);
  }

  const MlaDecodeParams& params_;
  LatentShared<kConfig>& shared_;
  const int rank_;
  const int pieces_;  // of a tile, at most 4
  PublishItems<kConfig> items_;
  RingPosition<kConfig.stages> at_;
};

}  // namespace quire::cuda::hopper
