// SPDX-License-Identifier: Apache-2.0
// The scorers of a thread block's share of a row: three warpgroups take its tiles by turns and leave the ranks
// of its keys.
#pragma once

#include "cuda/sm90/mla_indexer/group/shared.cuh"
#include "cuda/sm90/mla_indexer/row_share.cuh"
#include "cuda/sm90/mla_indexer/tile_scorer.cuh"

namespace quire::cuda::sm90::mla_indexer {

template <IndexConfig kConfig> class ShareScore {
 public:
  __device__ ShareScore(const IndexParams& params, const RowShare& share,
                        GroupShared<kConfig>& shared)
      : share_(share), shared_(shared), scorer_(params, shared, warpgroup_in_block()) {}

  __device__ void run() {
    shared_.queries_full.wait(0);
    __syncwarp();  // keeps reads behind the wait
    scorer_.load_weights(0);
    next_ = shared_.ranks() + warpgroup_in_block() * kIndexTileKeys + Scorer::key();
    scorer_.score(0, warpgroup_in_block(), share_.own_tiles(),
                  [this](const typename Scorer::Parts& parts) { leave(scorer_.join(parts)); });
    leave_summary();
  }

 private:
  using Scorer = TileScorer<kConfig, GroupShared<kConfig>>;

  __device__ void leave(const typename Scorer::Score& score) {
    const int key = Scorer::key();
    const bool is_seen =
        static_cast<int>(score.mark.position(key)) < share_.row.bound && score.mark.is_mapped(key);
    const std::uint32_t rank = is_seen ? rank_of(score.value) : kAbsentRank;
    if (Scorer::Sums::is_first()) *next_ = rank;
    next_ += IndexConfig::kWarpgroups * kIndexTileKeys;
    if (!is_seen) return;
    seen_.add({.least = rank, .greatest = rank, .count = Scorer::Sums::is_first() ? 1u : 0u});
  }

  __device__ void leave_summary() {
    __syncwarp();
    const RankSummary all = seen_.of_warp();
    if (threadIdx.x % 32 == 0) shared_.select.seen[threadIdx.x / 32] = all;
  }

  const RowShare& share_;
  GroupShared<kConfig>& shared_;
  Scorer scorer_;
  std::uint32_t* next_ = nullptr;  // the rank of this thread's key of the next tile
  RankSummary seen_;
};

}  // namespace quire::cuda::sm90::mla_indexer
