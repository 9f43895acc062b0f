// SPDX-License-Identifier: Apache-2.0
// The scorers of a row: three warpgroups take the thread block's tiles by turns, and leave the ranks of its
// keys in all thread blocks of the cluster. Ranks cross the cluster once; from then on no thread block waits
// for another.
#pragma once

#include "cuda/sm90/mla_indexer/cluster/cluster.cuh"
#include "cuda/sm90/mla_indexer/cluster/shared.cuh"
#include "cuda/sm90/mla_indexer/tile_scorer.cuh"

namespace quire::cuda::sm90::mla_indexer {

template <IndexConfig kConfig> class RowScore {
 public:
  __device__ RowScore(const IndexParams& params, const RowShare& share,
                      ClusterShared<kConfig>& shared)
      : share_(share),
        shared_(shared),
        scorer_(params, shared, warpgroup_in_block()),
        ranks_(shared_address(shared.ranks())) {}

  __device__ void run() {
    shared_.queries_full.wait(0);
    __syncwarp();  // keeps reads behind the wait
    scorer_.load_weights(0);
    cluster_of(share_).wait();  // the other thread blocks are there
    scorer_.score(0, warpgroup_in_block(), share_.own_tiles(),
                  [this](const typename Scorer::Parts& parts) { leave(scorer_.join(parts)); });
    leave_summary();
  }

 private:
  using Shared = ClusterShared<kConfig>;
  using Scorer = TileScorer<kConfig, Shared>;

  // Two lanes have each result: one stores it in the even thread blocks, the other in the odd ones.
  __device__ void leave(const typename Scorer::Score& score) {
    const int key = Scorer::key();
    const int position = static_cast<int>(score.mark.position(key));
    const bool is_seen = position < share_.row.bound && score.mark.is_mapped(key);
    const std::uint32_t rank = is_seen ? rank_of(score.value) : kAbsentRank;
    const auto place = ranks_ + static_cast<std::uint32_t>(position) * 4;
    const Cluster cluster = cluster_of(share_);
    for (int block = Scorer::Sums::is_first() ? 0 : 1; block < cluster.size; block += 2) {
      cluster.store(place, block, rank);
    }
    if (!is_seen) return;
    seen_.add({.least = rank, .greatest = rank, .count = Scorer::Sums::is_first() ? 1u : 0u});
  }

  __device__ void leave_summary() {
    __syncwarp();
    const RankSummary all = seen_.of_warp();
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const Cluster cluster = cluster_of(share_);
    if (lane >= cluster.size) return;
    RankSummaries& summaries = shared_.summaries;
    const int index = cluster.rank * RankSummaries::kWarps + static_cast<int>(threadIdx.x) / 32;
    const auto store = [&](const std::uint32_t& word, std::uint32_t value) {
      cluster.store(shared_address(&word), lane, value);
    };
    store(summaries.least[index], all.least);
    store(summaries.greatest[index], all.greatest);
    store(summaries.count[index], all.count);
  }

  const RowShare& share_;
  Shared& shared_;
  Scorer scorer_;
  const std::uint32_t ranks_;
  RankSummary seen_;
};

}  // namespace quire::cuda::sm90::mla_indexer
