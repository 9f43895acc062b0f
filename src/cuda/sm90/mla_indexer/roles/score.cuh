// SPDX-License-Identifier: Apache-2.0
// The scorers: three warpgroups take the tiles by turns, across pieces, and leave a score for each
// token and key.
#pragma once

#include "cuda/sm90/mla_indexer/tile_scorer.cuh"

namespace quire::cuda::sm90::mla_indexer {

template <IndexConfig kConfig> class IndexScore {
 public:
  __device__ IndexScore(const IndexParams& params, IndexShared<kConfig>& shared, int warpgroup)
      : shared_(shared),
        scorer_(params, shared, warpgroup),
        first_tile_(warpgroup),
        score_place_(Sums::token() * IndexConfig::kTileKeys +
                     ScoreSlot<kConfig.tokens>::place(Sums::token(), Scorer::key())) {
    // The compiler would find it anew for every tile.
    asm volatile("" : "+r"(score_place_));
  }

  __device__ void run() {
    int end = 0;  // of the pieces so far
    int tile = first_tile_;
    slot_at_.stage = tile;
    for (RingPosition<IndexShared<kConfig>::kQueries> queries;; queries.advance()) {
      shared_.query_ring.wait_full(queries);
      __syncwarp();  // keeps reads behind the wait
      const int tiles = shared_.query_tiles[queries.stage];
      if (tiles < 0) return;
      scorer_.load_weights(queries.stage);
      end += tiles;
      tile = scorer_.score(queries.stage, tile, end,
                           [this](const typename Scorer::Parts& parts) { leave(parts); });
      __syncwarp();
      if (threadIdx.x % 32 == 0) shared_.query_ring.empty[queries.stage].arrive();
    }
  }

 private:
  using Scorer = TileScorer<kConfig, IndexShared<kConfig>>;
  using Sums = typename Scorer::Sums;

  __device__ void leave(const typename Scorer::Parts& parts) {
    shared_.score_ring.wait_empty(slot_at_);
    __syncwarp();
    const typename Scorer::Score score = scorer_.join(parts);
    ScoreSlot<kConfig.tokens>& slot = shared_.slots[slot_at_.stage];
    if (Sums::is_first()) (&slot.ranks[0][0])[score_place_] = rank_of(score.value);
    if (threadIdx.x % 128 == 0) slot.mark = score.mark;
    if (Sums::is_first()) shared_.score_ring.full[slot_at_.stage].arrive();
    advance_by_turn(slot_at_);
  }

  IndexShared<kConfig>& shared_;
  Scorer scorer_;
  const int first_tile_;
  int score_place_;  // of this thread's key
  RingPosition<kConfig.score_slots> slot_at_;
};

}  // namespace quire::cuda::sm90::mla_indexer
