// SPDX-License-Identifier: Apache-2.0
// One warp: walks the CTA's part of the line, tells all others of every piece, and loads its
// queries and their weights. It runs ahead of them.
#pragma once

#include "cuda/sm90/mla_indexer/config.h"
#include "cuda/sm90/mla_indexer/find_part.cuh"
#include "cuda/sm90/mla_indexer/shared.cuh"
#include "cuda/sm90/mla_indexer/tile_loader.cuh"

namespace quire::cuda::sm90::mla_indexer {

template <IndexConfig kConfig> class IndexLead {
 public:
  __device__ IndexLead(const IndexParams& params, IndexShared<kConfig>& shared)
      : params_(params), shared_(shared), batch_(params.batch) {
    // A constant: divisions by it, of which the line has many, become shifts.
    batch_.block_tokens = kConfig.tokens;
  }

  __device__ void run() {
    if (lane() < 2) params_.pieces.headers[2 * blockIdx.x + lane()].first_token = -1;
    const LinePart part = find_part(batch_, static_cast<int>(blockIdx.x), params_.parts);
    if (!part.is_empty()) walk(part);
    auto last = piece_at_;
    for (int i = 0; i < Shared::kPieces; ++i, last.advance()) {
      shared_.piece_ring.wait_empty(last);
      __syncwarp();
      if (is_missed(last.stage)) give_again(last.stage);
    }
    publish({});
  }

 private:
  using Piece = IndexPiece<kConfig.tokens>;
  using Shared = IndexShared<kConfig>;

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  __device__ void walk(const LinePart& part) {
    int sequence = part.sequence;
    SequenceBlocks work = sequence_blocks(batch_, sequence);
    int block = block_at(batch_, work, part.begin - part.sequence_begin);
    std::int64_t at = part.sequence_begin + cost_before(batch_, work, block);
    while (at < part.end) {
      const int tiles = tiles_of(batch_, work, block);
      const TileRange range = tiles_within(at, tiles, part.begin, part.end);
      if (range.first < range.end) {
        give(make_piece(work, block, range, tiles, sequence));
      }
      at += kBlockCost + tiles;
      if (++block < work.blocks) continue;
      do {
        if (++sequence >= batch_.size) return;
        work = sequence_blocks(batch_, sequence);
      } while (!work.has_work());
      block = work.first_block;
    }
  }

  __device__ Piece make_piece(const SequenceBlocks& work, int block, const TileRange& range,
                              int tiles, int sequence) const {
    const int first = block * kConfig.tokens;
    Piece piece{.first_token = work.first_token + first,
                .first_tile = range.first,
                .end_tile = range.end,
                .row_tiles = tiles,
                .stride = sample_stride(range.end - range.first),
                .continues = range.end < tiles ? 1 : 0,
                .sequence = sequence,
                .num_keys = work.num_keys()};
    if (range.first > 0) {
      piece.slot = 2 * static_cast<int>(blockIdx.x);
    } else if (range.end < tiles) {
      piece.slot = 2 * static_cast<int>(blockIdx.x) + 1;
    }
#pragma unroll
    for (int t = 0; t < kConfig.tokens; ++t) {
      const int bound = bound_of(batch_, work, first + t);
      piece.bounds[t] = bound > batch_.top_k ? bound : 0;
      piece.scored_rows |= (piece.bounds[t] > 0 ? 1 : 0) << t;
    }
    return piece;
  }

  // When its place is free. Where the sample of the piece that had the place promised too much, that
  // one comes first once more.
  __device__ void give(const Piece& piece) {
    shared_.piece_ring.wait_empty(piece_at_);
    __syncwarp();
    while (is_missed(piece_at_.stage)) {
      give_again(piece_at_.stage);
      shared_.piece_ring.wait_empty(piece_at_);
      __syncwarp();
    }
    publish(piece);
  }

  __device__ bool is_missed(int place) const {
    unsigned any = 0;
#pragma unroll
    for (int t = 0; t < kConfig.tokens; ++t) any |= shared_.missed[place][t];
    return any != 0;
  }

  __device__ void give_again(int place) {
    Piece piece = shared_.pieces[place];
    piece.stride = 0;
#pragma unroll
    for (int t = 0; t < kConfig.tokens; ++t) {
      if (shared_.missed[place][t] == 0) piece.bounds[t] = 0;
    }
    __syncwarp();
    publish(piece);
  }

  // With its queries and their weights; those who load tiles need not wait for these. first_token -1 is
  // the end.
  __device__ void publish(const Piece& piece) {
    shared_.piece_ring.wait_empty(piece_at_);
    __syncwarp();  // keeps writes behind the wait
    if (lane() == 0) {
      shared_.pieces[piece_at_.stage] = piece;
      shared_.piece_ring.full[piece_at_.stage].arrive();
    }
    piece_at_.advance();
    shared_.query_ring.wait_empty(query_at_);
    __syncwarp();
    FullBarrier& full = shared_.query_ring.full[query_at_.stage];
    if (lane() == 0) {
      shared_.query_tiles[query_at_.stage] = piece.first_token < 0 ? -1 : piece.tiles();
      if (piece.first_token >= 0) {
        send_for_queries<kConfig>(params_, piece.first_token, query_at_.stage, full, shared_);
      }
    }
    if (piece.first_token >= 0) {
      copy_weights(piece.first_token);
      arrive_with_queries<kConfig>(query_at_, full, shared_);
    } else {
      full.arrive();
    }
    query_at_.advance();
  }

  __device__ void copy_weights(int first_token) {
    const IndexWeights& weights = params_.weights;
    for (int i = lane(); i < kConfig.columns(); i += 32) {
      const int token = i / kConfig.heads;
      const int head = i % kConfig.heads;
      float weight = 0.0f;
      if (first_token + token < batch_.tokens) {
        weight =
            weights.data[(first_token + token) * weights.token_stride + head * weights.head_stride];
      }
      shared_.weights[query_at_.stage][HeadSums<kConfig>::weight_place(token, head)] =
          0.5f * weight;
    }
  }

  const IndexParams& params_;
  IndexShared<kConfig>& shared_;
  IndexBatch batch_;
  RingPosition<Shared::kPieces> piece_at_;
  RingPosition<Shared::kQueries> query_at_;
};

}  // namespace quire::cuda::sm90::mla_indexer
