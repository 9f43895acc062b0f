// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/mla_indexer/block_team.cuh"
#include "cuda/sm90/mla_indexer/cluster/params.h"
#include "cuda/sm90/mla_indexer/rank_summary.cuh"
#include "cuda/sm90/mla_indexer/row_stages.cuh"

namespace quire::cuda::sm90::mla_indexer {

inline constexpr int kClusterThreads = IndexConfig::kScorers + 128;

// Of a selection by a whole thread block (select_row.cuh).
struct RowSelectShared {
  static constexpr int kGroupKeys = 128;  // that a warp looks at together
  static constexpr int kMaxGroups = 264;

  SelectShared<1> select;
  std::uint64_t bound;
  unsigned num_candidates;
  unsigned chosen[kMaxGroups];  // of a group of keys

  // Needs a sync before a selection.
  __device__ void clear() {
    if (threadIdx.x == 0) num_candidates = 0;
    clear_buckets(BlockTeam<kClusterThreads>{}, select.bins[0]);
  }
};

// What scorers have seen, one after another for each of their warps in the cluster.
struct RankSummaries {
  static constexpr int kWarps = IndexConfig::kScorers / 32;
  static constexpr int kMost = kMaxCluster * kWarps;

  std::uint32_t least[kMost];
  std::uint32_t greatest[kMost];
  std::uint32_t count[kMost];
};

// The ranks of a cluster's keys follow it: [capacity], the same in every thread block.
template <IndexConfig kConfig> struct alignas(1024) ClusterShared : RowStages<kConfig> {
  RowSelectShared select;
  RankSummaries summaries;

  // By one thread, before a fence_barrier_init and a barrier.
  __device__ void init() { this->init_stages(); }
  __device__ std::uint32_t* ranks() { return reinterpret_cast<std::uint32_t*>(this + 1); }
};

}  // namespace quire::cuda::sm90::mla_indexer
