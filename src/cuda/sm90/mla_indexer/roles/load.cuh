// SPDX-License-Identifier: Apache-2.0
// A warp for each warpgroup of scorers, as one warp alone would not keep up with them: it loads that
// warpgroup's tiles, across splits.
#pragma once

#include "cuda/sm90/mla_indexer/config.h"
#include "cuda/sm90/mla_indexer/find_part.cuh"
#include "cuda/sm90/mla_indexer/tile_loader.cuh"

namespace quire::cuda::sm90::mla_indexer {

template <IndexConfig kConfig> class IndexLoad {
 public:
  __device__ IndexLoad(const IndexParams& params, IndexShared<kConfig>& shared, int warpgroup)
      : shared_(shared), loader_(params, shared, warpgroup), next_(warpgroup) {}

  // Sends for the first lines of the page tables before anybody knows where the part begins: a small
  // batch has no more. By the threads of the loading warps.
  __device__ static void send_for_pages(const IndexParams& params) {
    const IndexPages& pages = params.pages;
    const std::int64_t line = threadIdx.x % 128;
    PageCursor::prefetch(pages.keys, params.batch.size, line * kLineEntries);
    PageCursor::prefetch(pages.scales, params.batch.size, line * kLineEntries);
  }

  __device__ void run() {
    int begin = 0;  // tiles of the splits before
    for (RingPosition<IndexShared<kConfig>::kSplits> at;; at.advance()) {
      shared_.split_ring.wait_full(at);
      __syncwarp();  // keeps reads behind the wait
      const Split split = shared_.splits[at.stage];
      if (split.first_token < 0) return;
      __syncwarp();
      if (threadIdx.x % 32 == 0) shared_.split_ring.empty[at.stage].arrive();
      load_tiles(split, begin);
      begin += split.tiles();
    }
  }

 private:
  using Split = IndexSplit<kConfig.tokens>;
  using Loader = TileLoader<kConfig, IndexShared<kConfig>>;
  using Box = typename Loader::Box;
  static constexpr int kStep = IndexConfig::kWarpgroups;
  static constexpr int kLineEntries = 128 / sizeof(std::uint32_t);

  __device__ void load_tiles(const Split& split, int begin) {
    const int run = loader_.run_tiles();
    const int end = begin + split.tiles();
    Box box = find_box(split, next_ - begin);
    while (next_ < end) {
      const Box next =
          find_box(split, next_ - begin + run * kStep);  // arrives while this run waits
      const unsigned mapped = loader_.mapped_boxes(box);
      const int last = min(next_ + run * kStep, end);
      for (int first = 0; next_ < last; next_ += kStep, first += loader_.boxes()) {
        loader_.load_tile(first, mapped, box);
      }
      box = next;
    }
  }

  // Of the run that begins with the first-th tile of the split.
  __device__ Box find_box(const Split& split, int first) const {
    const int index = first + loader_.lane_tile() * kStep;
    const int tile = split.first_tile + tile_in_order(index, split.tiles(), split.stride);
    return loader_.find_box(tile, split.sequence, split.num_keys);
  }

  IndexShared<kConfig>& shared_;
  Loader loader_;
  int next_;  // tile
};

// The scorers: three warpgroups take the tiles by turns, across splits, and leave a score for each
// token and key.

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
    int end = 0;  // of the splits so far
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
