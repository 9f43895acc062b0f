// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/hopper/mla_indexer/cluster/params.h"
#include "cuda/hopper/mla_indexer/shared.cuh"

namespace quire::cuda::hopper {

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
    clear_buckets(Team<kClusterThreads>{static_cast<int>(threadIdx.x), 0}, select.bins[0]);
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
template <IndexConfig kConfig> struct alignas(1024) ClusterShared {
  alignas(1024) std::byte tiles[kConfig.stages][kConfig.tile_bytes()];
  alignas(1024) std::byte queries[1][kConfig.query_bytes()];
  // As in IndexShared.
  alignas(1024) std::byte
      half_queries[1][kConfig.multiplies_halves() ? 2 * kConfig.query_bytes() : 16];
  alignas(128) float key_scales[2][kConfig.stages][4 * box_scales(16)];
  TileMark marks[2][kConfig.stages];
  alignas(16) float weights[1][HeadSums<kConfig>::kWeightFloats];  // half of q_scale
  RowSelectShared select;
  RankSummaries summaries;
  RingBarriers<kConfig.stages> ring;
  FullBarrier queries_full;

  // By one thread, before a fence_barrier_init and a barrier.
  __device__ void init() {
    ring.init(1, 4);  // a tile is one warpgroup's
    queries_full.init(1);
  }
  __device__ std::uint32_t* ranks() { return reinterpret_cast<std::uint32_t*>(this + 1); }
};

}  // namespace quire::cuda::hopper
