// SPDX-License-Identifier: Apache-2.0
// The scorers: three warpgroups take the tiles by turns, across pieces, and leave a score for each
// token and key.
#pragma once

#include "cuda/hopper/mla_indexer/tile_scorer.cuh"

namespace quire::cuda::hopper {

template <IndexConfig kConfig> class IndexScore {
 public:
  __device__ IndexScore(const IndexParams& params, IndexShared<kConfig>& shared)
      : shared_(shared),
        scorer_(params, shared),
        score_place_(Sums::token() * (IndexConfig::kTileKeys + 16) + Scorer::key()) {
    // The compiler would find it anew for every tile.
    asm volatile("" : "+r"(score_place_));
  }

  __device__ void run() {
    int end = 0;  // of the pieces so far
    int tile = warpgroup_in_block();
    slot_at_.stage = tile;
    for (RingPosition<IndexShared<kConfig>::kQueries> queries;; queries.advance()) {
      shared_.query_ring.wait_full(queries);
      __syncwarp();  // keeps reads behind the wait
      const int tiles = shared_.query_tiles[queries.stage];
      if (tiles < 0) return;
      scorer_.load_queries(queries.stage);
      for (end += tiles; tile < end; tile += IndexConfig::kWarpgroups) {
        leave(scorer_.score_next(queries.stage));
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) shared_.query_ring.empty[queries.stage].arrive();
    }
  }

 private:
  using Scorer = TileScorer<kConfig, IndexShared<kConfig>>;
  using Sums = typename Scorer::Sums;

  __device__ void leave(const typename Scorer::Scores& scores) {
    shared_.score_ring.wait_empty(slot_at_);
    __syncwarp();
    ScoreSlot<kConfig.tokens>& slot = shared_.slots[slot_at_.stage];
    if (Sums::is_first()) {
#pragma unroll
      for (int i = 0; i < Sums::kResults; ++i) {
        (&slot.scores[0][0])[score_place_ + 8 * i] = scores.values[i];
      }
    }
    if (threadIdx.x % 128 == 0) slot.mark = scores.mark;
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared_.score_ring.full[slot_at_.stage].arrive();
    advance_by_turn(slot_at_);
  }

  IndexShared<kConfig>& shared_;
  Scorer scorer_;
  int score_place_;  // of this thread's first key
  RingPosition<kConfig.score_slots> slot_at_;
};

}  // namespace quire::cuda::hopper
