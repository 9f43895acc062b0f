// SPDX-License-Identifier: Apache-2.0
// Two warpgroups: scores, softmax and values of tiles of keys, item by item. How the keys come into
// shared memory is somebody else's (shared.cuh).
//
// While a warpgroup is at the softmax of a tile, the scores of its next one are on the way through the
// tensor cores, and then their halves to the other block.
#pragma once

#include "cuda/hopper/latent_attention/exchange.cuh"
#include "cuda/hopper/latent_attention/join.cuh"
#include "cuda/hopper/latent_attention/load_queries.cuh"
#include "cuda/hopper/latent_attention/row_sight.cuh"
#include "cuda/hopper/latent_attention/store.cuh"

namespace quire::cuda::hopper {

template <LatentConfig kConfig> class LatentAttend {
 public:
  using Shared = LatentShared<kConfig>;
  using Position = RingPosition<kConfig.stages>;

  __device__ LatentAttend(const LatentParams& params, Shared& shared, int warpgroup)
      : params_(params),
        shared_(shared),
        warpgroup_(warpgroup),
        warp_(4 * warpgroup + static_cast<int>(threadIdx.x % 128 / 32)),
        rank_(static_cast<int>(cute::block_rank_in_cluster())),
        partials_(shared, __shfl_sync(0xffffffff, warp_, 0)) {}

  __device__ void run() {
    for (RingPosition<LatentConfig::kItems> item_at;; item_at.advance()) {
      shared_.item_ring.wait_full(item_at);
      const LatentItem& item = shared_.items[item_at.stage];
      if (item.tiles == 0) return;
      load_queries<kConfig>(params_, shared_, item, rank_, warp_);
      sync_consumers();
      has_rows_ = warp_row() < item.rows;
      Sums sums = {};
      RowSoftmax softmax;
      const bool owns_even = attend_item(item, softmax, sums);
      finish(item, owns_even, softmax, sums);
      release(shared_.item_ring.empty[item_at.stage]);
    }
  }

 private:
  using Block = float[kTileScores];
  using Weights = std::uint32_t[kTileWords];
  using Sums = float[kTileSums];

  __device__ int group() const { return kConfig.row_groups == 1 ? 0 : warpgroup_; }
  // The warp's first row of the item, and the thread's.
  __device__ int warp_row() const {
    return group() * LatentConfig::kGroupRows + warp_ % 4 * kWgmmaRows / 4;
  }
  __device__ int thread_row() const {
    return warp_row() + static_cast<int>(threadIdx.x % 32 / 4);
  }
  // Of those that share q.
  __device__ void sync_consumers() const {
    if constexpr (kConfig.row_groups == 1) {
      cutlass::arch::NamedBarrier::sync(LatentConfig::kThreads, kJoinBarrier);
    } else {
      cutlass::arch::NamedBarrier::sync(128, static_cast<std::uint32_t>(kJoinBarrier + warpgroup_));
    }
  }
  __device__ static void release(EmptyBarrier& empty) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) empty.arrive();
  }
  __device__ static Position moved(const Position& at, int tiles) {
    const int stage = at.stage + tiles;
    return {.stage = stage % kConfig.stages,
            .phase = at.phase ^ static_cast<std::uint32_t>(stage / kConfig.stages & 1)};
  }

  // True if this warpgroup takes the item's first tile.
  __device__ bool attend_item(const LatentItem& item, RowSoftmax& softmax, Sums& sums) {
    const int first = kConfig.row_groups == 1 ? (at_.stage ^ warpgroup_) & 1 : 0;
    Position at = moved(at_, first);
    at_ = moved(at_, item.tiles);
    if (first < item.tiles) {
      const RowSight sight(params_, item, kConfig.rows());
      Block scores;
      start(at, scores);
      int tile = first;
      for (; tile + kConfig.tile_step() < item.tiles; tile += kConfig.tile_step()) {
        const Position next = moved(at, kConfig.tile_step());
        step(sight, tile, at.stage, next, softmax, scores, sums);
        at = next;
      }
      last(sight, tile, at.stage, softmax, scores, sums);
    }
    return first == 0;
  }

  // An item's first scores, alone.
  __device__ void start(const Position& at, Block& scores) {
    if (has_rows_) partials_.allow();
    shared_.ring.wait_full(at);
    pin(scores);
    cute::warpgroup_arrive();
    issue_scores<kConfig>(shared_, group(), at.stage, scores);
    cute::warpgroup_commit_batch();
    cute::warpgroup_wait<0>();
    pin(scores);
    if (has_rows_) partials_.send(scores);
  }

  // A tile's softmax and values, and the scores of the next.
  __device__ void step(const RowSight& sight, int tile, int stage, const Position& next_at,
                       RowSoftmax& softmax, Block& scores, Sums& sums) {
    Block next;
    Weights weights;
    shared_.ring.wait_full(next_at);
    pin(next);
    cute::warpgroup_arrive();
    issue_scores<kConfig>(shared_, group(), next_at.stage, next);
    cute::warpgroup_commit_batch();
    weigh(sight, tile, stage, softmax, scores, weights, sums);
    if (has_rows_) partials_.allow();
    add_values(stage, weights, sums);
    cute::warpgroup_wait<1>();
    pin(next);
    if (has_rows_) partials_.send(next);
    cute::warpgroup_wait<0>();
    pin(sums);
    pin(weights);
    release(shared_.ring.empty[stage]);
#pragma unroll
    for (int i = 0; i < kTileScores; ++i) scores[i] = next[i];
  }

  __device__ void last(const RowSight& sight, int tile, int stage, RowSoftmax& softmax,
                       Block& scores, Sums& sums) {
    Weights weights;
    weigh(sight, tile, stage, softmax, scores, weights, sums);
    add_values(stage, weights, sums);
    cute::warpgroup_wait<0>();
    pin(sums);
    pin(weights);
    release(shared_.ring.empty[stage]);
  }

  // Scores into weights; the sums so far follow the new maxima.
  __device__ void weigh(const RowSight& sight, int tile, int stage, RowSoftmax& softmax,
                        Block& scores, Weights& weights, Sums& sums) {
    if (!has_rows_) {
#pragma unroll
      for (int i = 0; i < kTileWords; ++i) weights[i] = 0;
      return;
    }
    partials_.add_received(scores);
    sight.hide(tile, shared_.valid_keys(stage), thread_row(), scores);
    float keep[2];
    softmax.weigh(scores, params_.to_log2, keep);
    pack<kConfig.dtype>(scores, weights);
    // Most tiles leave every row's maximum as it was.
    if (!__all_sync(0xffffffff, keep[0] == 1.0F && keep[1] == 1.0F)) scale_rows(sums, keep);
  }

  __device__ void add_values(int stage, Weights& weights, Sums& sums) {
    pin(sums);
    pin(weights);
    cute::warpgroup_arrive();
    issue_values<kConfig>(shared_, stage, weights, sums);
    cute::warpgroup_commit_batch();
  }

  __device__ void finish(const LatentItem& item, bool owns_even, const RowSoftmax& softmax,
                         const Sums& sums) {
    RowStats stats = row_stats(softmax, params_.to_log2);
    if constexpr (kConfig.row_groups == 2) {
      store_item<kConfig.dtype>(params_, item, place(0), stats, sums);
    } else if (warpgroup_ == 0) {
      finish_joined<0>(item, owns_even, stats, sums);
    } else {
      finish_joined<1>(item, owns_even, stats, sums);
    }
  }

  template <int kWarpgroup>
  __device__ void finish_joined(const LatentItem& item, bool owns_even, RowStats& stats,
                                const Sums& sums) {
    float joined[kJoinedSums];
    join_warpgroups<kConfig, kWarpgroup>(shared_, owns_even, sums, stats, joined);
    store_item<kConfig.dtype>(params_, item, place(kWarpgroup * LatentConfig::kColumns / 2), stats,
                              joined);
  }

  __device__ StorePlace place(int column) const {
    return {.row = thread_row(),
            .column = rank_ * LatentConfig::kColumns + column,
            .stores_stats = rank_ == 0 && column == 0};
  }

  const LatentParams& params_;
  Shared& shared_;
  const int warpgroup_;
  const int warp_;  // of the eight
  const int rank_;  // of the block
  PartialScores<kConfig> partials_;
  bool has_rows_ = true;  // the warp has rows that are somebody's
  Position at_;           // the item's first tile
};

}  // namespace quire::cuda::hopper
