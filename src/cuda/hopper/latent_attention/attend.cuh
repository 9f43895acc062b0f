// SPDX-License-Identifier: Apache-2.0
// Two warpgroups: scores, softmax and values of tiles of keys, item by item. How the keys come into
// shared memory is somebody else's (shared.cuh).
//
// A warpgroup's products stand together, the scores of a tile and the values of the one before it, and
// so does its softmax: while one warpgroup is at that, the tensor cores are the other's.
#pragma once

#include "cuda/hopper/latent_attention/exchange.cuh"
#include "cuda/hopper/latent_attention/join.cuh"
#include "cuda/hopper/latent_attention/load_queries.cuh"
#include "cuda/hopper/latent_attention/row_sight.cuh"
#include "cuda/hopper/latent_attention/store.cuh"
#include "cuda/hopper/tile/opaque.cuh"

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
        partials_(shared, __shfl_sync(0xffffffff, warp_, 0)),
        join_(shared.join) {}

  __device__ void run() {
    for (RingPosition<LatentConfig::kItems> item_at;; item_at.advance()) {
      shared_.item_ring.wait_full(item_at);
      const LatentItem& item = shared_.items[item_at.stage];
      if (item.tiles == 0) return;
      load_queries<kConfig>(params_, shared_, item, rank_, opaque(warp_));
      sync_consumers();
      has_rows_ = warp_row() < item.rows;
      Sums sums = {};
      RowSoftmax softmax;
      const bool owns_even = attend_item(item, softmax, sums);
      finish(item, owns_even, softmax, sums);
      shared_.item_ring.empty[item_at.stage].arrive();
    }
  }

 private:
  using Block = float[kTileScores];
  using Weights = std::uint32_t[kTileWords];
  using Sums = float[kTileSums];

  __device__ int group() const { return kConfig.row_groups == 1 ? 0 : warpgroup_; }
  // The warp's first row of the item, and the thread's. Opaque, so that they are found again where they are
  // wanted: kept from item to item they would be in the way of the products' registers, and be spilled.
  __device__ int warp_row() const {
    return group() * LatentConfig::kGroupRows + opaque(warp_) % 4 * kWgmmaRows / 4;
  }
  __device__ int thread_row() const { return warp_row() + static_cast<int>(threadIdx.x % 32 / 4); }
  // Of those that share q.
  __device__ void sync_consumers() const {
    if constexpr (kConfig.row_groups == 1) {
      cutlass::arch::NamedBarrier::sync(LatentConfig::kThreads, kJoinBarrier);
    } else {
      cutlass::arch::NamedBarrier::sync(128, static_cast<std::uint32_t>(kJoinBarrier + warpgroup_));
    }
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
      Weights weights;
      score(at, scores);
      weigh(sight, first, at.stage, softmax, scores, sums);
      pack<kConfig.dtype>(scores, weights);
      int stage = at.stage;  // of the weights
      for (int tile = first + kConfig.tile_step(); tile < item.tiles; tile += kConfig.tile_step()) {
        at = moved(at, kConfig.tile_step());
        step(sight, tile, stage, at, softmax, scores, weights, sums);
        stage = at.stage;
      }
      add_values(stage, weights, sums);
      await_values(stage, weights, sums);
    }
    return first == 0;
  }

  // A tile's scores, and their way to the other block.
  __device__ void score(const Position& at, Block& scores) {
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

  // The values of the tile before, so that its stage is soon free again; then a tile's scores and
  // softmax.
  __device__ void step(const RowSight& sight, int tile, int value_stage, const Position& at,
                       RowSoftmax& softmax, Block& scores, Weights& weights, Sums& sums) {
    add_values(value_stage, weights, sums);
    await_values(value_stage, weights, sums);
    score(at, scores);
    weigh(sight, tile, at.stage, softmax, scores, sums);
    pack<kConfig.dtype>(scores, weights);
  }

  // Scores into weights. Most tiles leave every row's maximum as it was.
  __device__ void weigh(const RowSight& sight, int tile, int stage, RowSoftmax& softmax,
                        Block& scores, Sums& sums) {
    if (!has_rows_) return clear(scores);
    float keep[2];
    partials_.add_received(scores);
    sight.hide(tile, shared_.valid_keys(stage), thread_row(), scores);
    softmax.weigh(scores, params_.to_log2, keep);
    if (!__all_sync(0xffffffff, keep[0] == 1.0F && keep[1] == 1.0F)) scale_rows(sums, keep);
  }
  __device__ static void clear(Block& scores) {
#pragma unroll
    for (int i = 0; i < kTileScores; ++i) scores[i] = 0.0F;
  }

  __device__ void add_values(int stage, Weights& weights, Sums& sums) {
    pin(sums);
    pin(weights);
    cute::warpgroup_arrive();
    issue_values<kConfig>(shared_, stage, weights, sums);
    cute::warpgroup_commit_batch();
  }
  __device__ void await_values(int stage, Weights& weights, Sums& sums) {
    cute::warpgroup_wait<0>();
    pin(sums);
    pin(weights);
    shared_.ring.empty[stage].arrive();
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
    join_warpgroups<kConfig, kWarpgroup>(shared_, join_, owns_even, sums, stats, joined);
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
  JoinBarrier join_;
  bool has_rows_ = true;  // the warp has rows that are somebody's
  Position at_;           // the item's first tile
};

}  // namespace quire::cuda::hopper
