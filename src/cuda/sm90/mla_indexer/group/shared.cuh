// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/mla_indexer/block_team.cuh"
#include "cuda/sm90/mla_indexer/compare_codes.cuh"
#include "cuda/sm90/mla_indexer/group/params.h"
#include "cuda/sm90/mla_indexer/rank_summary.cuh"
#include "cuda/sm90/mla_indexer/row_stages.cuh"

namespace quire::cuda::sm90::mla_indexer {

inline constexpr int kGroupThreads = IndexConfig::kScorers + 128;
using GroupTeam = BlockTeam<kGroupThreads>;

// Of the selection from a thread block's own keys, then from the heads of its group.
struct GroupSelectShared {
  static constexpr int kWindowWords = 768;
  static constexpr int kScorerWarps = IndexConfig::kScorers / 32;

  SelectShared<1> select;
  RankSummary seen[kScorerWarps];  // by each warp of scorers
  std::uint64_t bound;
  unsigned collected;   // codes, of the head or of the tail
  unsigned valid;       // codes in all heads
  unsigned before;      // chosen positions before this thread block's window
  unsigned tail_place;  // of the thread block's own in its group's tail
  unsigned num_candidates;
  std::uint64_t candidates[kMostCandidates];
  RankLimits limits;
  // A bit for each position that this thread block writes if it is chosen.
  std::uint32_t window[kWindowWords];

  // Needs a sync before a selection.
  __device__ void clear() {
    const auto thread = static_cast<int>(threadIdx.x);
    clear_buckets(GroupTeam{}, select.bins[0]);
    for (int i = thread; i < kWindowWords; i += kGroupThreads) window[i] = 0;
    if (thread != 0) return;
    collected = 0;
    valid = 0;
    before = 0;
    num_candidates = 0;
    limits = {};
  }
};

// The ranks of a thread block's keys follow it: [capacity], tile after tile.
template <IndexConfig kConfig> struct alignas(1024) GroupShared : RowStages<kConfig> {
  GroupSelectShared select;

  // The codes of its head, where tiles were.
  static_assert(sizeof(RowStages<kConfig>::tiles) >= GroupBoard::kMostHead * sizeof(std::uint64_t));
  __device__ std::uint64_t* codes() { return reinterpret_cast<std::uint64_t*>(this->tiles); }
  __device__ std::uint32_t* ranks() { return reinterpret_cast<std::uint32_t*>(this + 1); }

  // By one thread, before a fence_barrier_init and a barrier.
  __device__ void init() { this->init_stages(); }
};

}  // namespace quire::cuda::sm90::mla_indexer
