// SPDX-License-Identifier: Apache-2.0
// One warp: walks the thread block's part of the line, tells the scorers of every piece, and loads its
// queries and key tiles. It runs ahead of them, across pieces. Each lane copies its own piece of a page.
#pragma once

#include "cuda/hopper/mla_indexer/find_part.cuh"
#include "cuda/hopper/mla_indexer/head_sums.cuh"
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

  // The pages of a lane's box of a tile; num_pages or more: none.
  struct BoxPages {
    std::uint32_t keys;
    std::uint32_t scales;
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
    BoxPages pages = find_pages(sequence, piece.first_tile, num_keys);
    publish(piece);
    for (int tile = piece.first_tile; tile < piece.end_tile; ++tile) {
      const BoxPages next = find_pages(sequence, tile + 1, num_keys);  // arrives while this waits
      load_tile(tile, pages);
      pages = next;
    }
  }

  // With its queries and their weights. first_token -1 is the end.
  __device__ void publish(const Piece& piece) {
    shared_.piece_ring.wait_empty(piece_at_);
    FullBarrier& full = shared_.piece_ring.full[0];
    if (piece.first_token >= 0) copy_weights(piece.first_token);
    if (lane() == 0) shared_.piece = piece;
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
        weight = weights.data[token * weights.token_stride +
                              i % kConfig.heads * weights.head_stride];
      }
      shared_.weights[HeadSums<kConfig>::weight_place(i)] = 0.5f * weight;
    }
  }

  // Nothing here waits for the page table's answer.
  __device__ BoxPages find_pages(int sequence, int tile, int num_keys) const {
    const IndexPages& pages = params_.pages;
    const int key = tile * kIndexTileKeys + lane() % boxes_ * pages.box_rows;
    const int column = key / pages.page_size;
    if (key >= num_keys || column >= pages.max_pages) return {0xffffffff, 0xffffffff};
    return {.keys = pages.table[sequence * pages.table_stride + column],
            .scales = pages.scale_table[sequence * pages.scale_table_stride + column]};
  }

  // A page that is not there lies outside the map: the copy writes zeros, and the bytes to wait for
  // are always the same.
  __device__ void load_tile(int tile, const BoxPages& at) {
    const IndexPages& pages = params_.pages;
    const auto num_pages = static_cast<std::uint32_t>(pages.num_pages);
    const auto num_scale_pages = static_cast<std::uint32_t>(pages.num_scale_pages);
    const unsigned mapped = __ballot_sync(kWholeWarp, at.keys < num_pages);
    shared_.ring.wait_empty(at_);
    FullBarrier& full = shared_.ring.full[at_.stage];
    if (lane() == 0) {
      shared_.mapped[at_.stage] = mapped;
      full.arrive_and_expect_tx(kConfig.tile_bytes() + kIndexTileKeys * sizeof(float));
    }
    __syncwarp();
    if (lane() < boxes_) {
      const int first = lane() * pages.box_rows;
      const int row = (tile * kIndexTileKeys + first) % pages.page_size;
      load_box({.map = &params_.keys,
                .shared = &shared_.tiles[at_.stage][first * kConfig.dims],
                .full = &full},
               0, row, static_cast<int>(min(at.keys, num_pages)));
      load_box({.map = &params_.key_scales,
                .shared = &shared_.key_scales[at_.stage][lane() * box_scales(pages.box_rows)],
                .full = &full},
               row, static_cast<int>(min(at.scales, num_scale_pages)));
    }
    __syncwarp();
    at_.advance();
  }

  const IndexParams& params_;
  IndexShared<kConfig>& shared_;
  const int boxes_;  // of a tile, at most 4
  RingPosition<kConfig.stages> at_;
  RingPosition<1> piece_at_;
};

}  // namespace quire::cuda::hopper
