// SPDX-License-Identifier: Apache-2.0
// One warp: walks the thread block's part of the line, tells the scorers of every piece, and loads its
// queries and key tiles. It runs ahead of them, across pieces. Each lane copies its own piece of a page.
#pragma once

#include "cuda/hopper/mla_indexer/find_part.cuh"
#include "cuda/hopper/mla_indexer/shared.cuh"
#include "cuda/hopper/tile/tma.cuh"

namespace quire::cuda::hopper {

template <IndexConfig kConfig> class IndexLoad {
 public:
  __device__ IndexLoad(const IndexParams& params, IndexShared<kConfig>& shared)
      : params_(params), shared_(shared), boxes_(kIndexTileKeys / params.pages.box_rows) {}

  __device__ void run() {
    const IndexBatch& batch = params_.batch;
    if (lane() < 2) params_.pieces.headers[2 * blockIdx.x + lane()].first_token = -1;
    const LinePart part = find_part(batch, static_cast<int>(blockIdx.x), params_.parts);
    if (!part.is_empty()) walk(part);
    publish({});
  }

 private:
  using Piece = IndexPiece<kConfig.tokens>;

  // A lane's box of the next 32: a run of tiles. Whatever a tile's copies need is found for the whole
  // run at once, or this one warp would not keep up with the tensor cores.
  struct Box {
    int key_page;    // num_pages: none
    int scale_page;  // the same
    int row;         // of the page
  };

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  __device__ void walk(const LinePart& part) {
    const IndexBatch& batch = params_.batch;
    int sequence = part.sequence;
    SequenceBlocks work = sequence_blocks(batch, sequence);
    int block = block_at(batch, work, part.begin - part.sequence_begin);
    std::int64_t at = part.sequence_begin + cost_before(batch, work, block);
    while (at < part.end) {
      const int tiles = tiles_of(batch, work, block);
      const TileRange range = tiles_within(at, tiles, part.begin, part.end);
      if (range.first < range.end) {
        load_piece(make_piece(work, block, range, tiles), sequence, work.num_keys());
      }
      at += kBlockCost + tiles;
      if (++block < work.blocks) continue;
      do {
        if (++sequence >= batch.size) return;
        work = sequence_blocks(batch, sequence);
      } while (!work.has_work());
      block = work.first_block;
    }
  }

  __device__ Piece make_piece(const SequenceBlocks& work, int block, const TileRange& range,
                              int tiles) const {
    const int first = block * kConfig.tokens;
    Piece piece{.first_token = work.first_token + first,
                .first_tile = range.first,
                .end_tile = range.end,
                .continues = range.end < tiles ? 1 : 0};
    if (range.first > 0) {
      piece.slot = 2 * static_cast<int>(blockIdx.x);
    } else if (range.end < tiles) {
      piece.slot = 2 * static_cast<int>(blockIdx.x) + 1;
    }
#pragma unroll
    for (int t = 0; t < kConfig.tokens; ++t) {
      const int bound = bound_of(params_.batch, work, first + t);
      piece.bounds[t] = bound > params_.batch.top_k ? bound : 0;
    }
    return piece;
  }

  __device__ void load_piece(const Piece& piece, int sequence, int num_keys) {
    const int run = 32 / boxes_;  // tiles
    Box box = find_box(sequence, piece.first_tile, num_keys);
    publish(piece);
    for (int first = piece.first_tile; first < piece.end_tile; first += run) {
      const Box next = find_box(sequence, first + run, num_keys);  // arrives while this run waits
      const unsigned mapped = __ballot_sync(kWholeWarp, box.key_page < params_.pages.num_pages);
      const int tiles = min(run, piece.end_tile - first);
      for (int tile = 0; tile < tiles; ++tile) load_tile(tile * boxes_, mapped, box);
      box = next;
    }
  }

  // With its queries and their weights. first_token -1 is the end.
  __device__ void publish(const Piece& piece) {
    shared_.piece_ring.wait_empty(piece_at_);
    __syncwarp();  // keeps writes behind the wait
    FullBarrier& full = shared_.piece_ring.full[0];
    if (piece.first_token >= 0) copy_weights(piece.first_token);
    if (lane() == 0) {
      shared_.piece = piece;
      shared_.piece.phase = piece_at_.phase;
    }
    __syncwarp();
    if (lane() == 0) {
      if (piece.first_token < 0) {
        full.arrive();
      } else {
        full.arrive_and_expect_tx(kConfig.query_bytes());
        load_box({.map = &params_.q, .shared = shared_.queries, .full = &full}, 0, 0,
                 piece.first_token);
      }
    }
    __syncwarp();
    piece_at_.advance();
  }

  __device__ void copy_weights(int first_token) {
    const IndexWeights& weights = params_.weights;
    for (int i = lane(); i < kConfig.columns(); i += 32) {
      const int token = first_token + i / kConfig.heads;
      float weight = 0.0f;
      if (token < params_.batch.tokens) {
        weight =
            weights.data[token * weights.token_stride + i % kConfig.heads * weights.head_stride];
      }
      shared_.weights[HeadSums<kConfig>::weight_place(i)] = 0.5f * weight;
    }
  }

  // Of the run that begins with tile `first`. Nothing here waits for the page table's answer.
  __device__ Box find_box(int sequence, int first, int num_keys) const {
    const IndexPages& pages = params_.pages;
    const int key = first * kIndexTileKeys + lane() * pages.box_rows;
    const int column = key / pages.page_size;
    Box box{.key_page = pages.num_pages,
            .scale_page = pages.num_scale_pages,
            .row = key - column * pages.page_size};
    if (key >= num_keys || column >= pages.max_pages) return box;
    const std::uint32_t key_page = pages.table[sequence * pages.table_stride + column];
    const std::uint32_t scale_page =
        pages.scale_table[sequence * pages.scale_table_stride + column];
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
      shared_.mapped[at_.phase][at_.stage] = groups_of(mapped >> first_lane);
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
    at_.advance();
  }

  // Bit g: keys 16g … 16g + 15 of a tile have a page. Of its boxes' bits.
  __device__ unsigned groups_of(unsigned boxes) const {
    if (boxes_ == 4) return boxes;
    if (boxes_ == 2) return (boxes & 1) * 3 + (boxes >> 1 & 1) * 12;
    return (boxes & 1) * 15;
  }

  const IndexParams& params_;
  IndexShared<kConfig>& shared_;
  const int boxes_;  // of a tile, at most 4
  RingPosition<kConfig.stages> at_;
  RingPosition<1> piece_at_;
};

}  // namespace quire::cuda::hopper
