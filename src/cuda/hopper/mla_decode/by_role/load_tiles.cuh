// SPDX-License-Identifier: Apache-2.0
// One warp: walks the cluster's part of the work and has the copy engine bring tiles of keys, a part
// of the columns at a time, as soon as the values of the tile before last are done with it.
#pragma once

#include "cuda/hopper/flash_attention/decode/find_work.cuh"
#include "cuda/hopper/latent_attention/load_queries.cuh"
#include "cuda/hopper/mla_decode/by_role/shared.cuh"
#include "cuda/hopper/mla_decode/params.h"
#include "cuda/hopper/mla_decode/roles/describe_item.cuh"
#include "cuda/hopper/mla_decode/touch_lengths.cuh"
#include "cuda/hopper/tile/tma.cuh"

namespace quire::cuda::hopper {

class LoadTiles {
 public:
  __device__ LoadTiles(const MlaDecodeParams& params, ByRoleShared& shared, int rank)
      : params_(params),
        shared_(shared),
        rank_(rank),
        pieces_(ByRole::kKeys / params.pages.box_rows) {}

  // `cluster`: whose part.
  __device__ void run(int cluster) {
    touch_lengths(params_.batch);
    if (lane() == 0) prefetch(params_.latents);
    WorkWalk walk = start_walk(params_, cut_batch(params_), cluster);
    for (WorkPiece piece; walk.next(piece);) {
      const SequenceWork& work = walk.work();
      const LatentItem item = describe_item(params_.batch, work, piece);
      prefetch_queries(item);
      publish(item);
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

  // This block's rows.
  __device__ void prefetch_queries(const LatentItem& item) const {
    for (int row = lane(); row < ByRole::kRows; row += 32) {
      prefetch_query(params_.attend, item, rank_ * ByRole::kRows + row);
    }
  }

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
      load_parts(now, std::make_index_sequence<ByRole::kParts>{});
      now = next;
    }
  }

  template <std::size_t... kTurn>
  __device__ void load_parts(const Piece& piece, std::index_sequence<kTurn...>) {
    const unsigned missing =
        __ballot_sync(kWholeWarp, piece.page >= params_.pages.num_pages && lane() < pieces_);
    (load_part<part_of(kTurn)>(piece, missing), ...);
  }

  // Unrolled: how soon the boxes are asked for is part of every tile's chain.
  template <int kPart> __device__ void load_part(const Piece& piece, unsigned missing) {
    constexpr int kSlabs = ByRole::kPartSlabs + (kPart == 0 ? 1 : 0);
    const int stage = stage_of(tile_);
    shared_.empty[stage][kPart].wait(phase_of(tile_) ^ 1);
    FullBarrier& full = shared_.full[stage][kPart];
    if (lane() == 0) {
      if (kPart == 0) shared_.valid[stage] = valid_bits(missing);
      full.arrive_and_expect_tx(kSlabs * ByRole::kSlabBytes);
    }
    __syncwarp();
    if (lane() < pieces_) {
#pragma unroll
      for (int i = 0; i < kSlabs; ++i) {
        const int slab =
            i < ByRole::kPartSlabs ? ByRole::kPartSlabs * kPart + i : ByRole::kRopeSlab;
        load_box(
            {.map = &params_.latents,
             .shared = &shared_.stages[stage][slab][lane() * params_.pages.box_rows * kRowBytes],
             .full = &full},
            slab * ByRole::kSlabColumns, piece.row, static_cast<int>(piece.page));
      }
    }
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

  const MlaDecodeParams& params_;
  ByRoleShared& shared_;
  const int rank_;
  const int pieces_;  // of a tile, at most 4
  int tile_ = 0;
  RingPosition<ByRole::kItems> item_at_;
};

}  // namespace quire::cuda::hopper
