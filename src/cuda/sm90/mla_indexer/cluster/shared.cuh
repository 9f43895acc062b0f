// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/mla_indexer/cluster/params.h"
#include "cuda/sm90/mla_indexer/select.cuh"
#include "cuda/sm90/mla_indexer/shared.cuh"
#include "cuda/sm90/mla_indexer/team.cuh"

namespace quire::cuda::sm90::mla_indexer {

inline constexpr int kClusterThreads = IndexConfig::kScorers + 128;

// Of a selection by a whole CTA (select_row.cuh).
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

// The ranks of a cluster's keys follow it: [capacity], the same in every CTA.
template <IndexConfig kConfig> struct alignas(1024) ClusterShared : RowStages<kConfig> {
  RowSelectShared select;
  RankSummaries summaries;

  // By one thread, before a fence_barrier_init and a barrier.
  __device__ void init() { this->init_stages(); }
  __device__ std::uint32_t* ranks() { return reinterpret_cast<std::uint32_t*>(this + 1); }
};

// The CTAs of a cluster: barriers and stores to each other's shared memory. A kernel that was
// started without a cluster is alone.

struct Cluster {
  int rank = 0;
  int size = 1;

  // By all threads; a wait follows. Nothing written before need be seen by others.
  __device__ void arrive() const {
    if (size > 1) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  }
  __device__ void wait() const {
    if (size > 1) asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
  }
  // What others have stored before is seen behind it.
  __device__ void sync() const {
    if (size > 1) {
      asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
      wait();
    } else {
      __syncthreads();
    }
  }

  // To the same place as the local address, in CTA `to`.
  __device__ void store(std::uint32_t local, int to, std::uint32_t value) const {
    const std::uint32_t place =
        to == rank ? local : address_in_block(local, static_cast<std::uint32_t>(to));
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(place), "r"(value) : "memory");
  }
};

__device__ inline Cluster cluster_of(const RowShare& share) {
  return {.rank = share.rank, .size = share.size};
}

// Which sequence a token is of and how many keys it sees, by a whole warp in one round trip to memory where
// sequences have one new token each.

// All lanes get the same answer.
__device__ inline WholeRow find_row(const IndexBatch& batch, int token) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  // Where it is likely to be; if it is not there, all are gone through.
  int first = max(0, token - 15);
  for (bool is_guess = true;; is_guess = false) {
    const int sequence = first + lane;
    SequenceBlocks work;
    if (sequence < batch.size) work = sequence_blocks(batch, sequence);
    const int index = token - work.first_token;
    const bool has_token = index >= 0 && index < work.tokens;
    const unsigned holders = __ballot_sync(kWholeWarp, has_token);
    if (holders != 0) {
      const int holder = __ffs(static_cast<int>(holders)) - 1;
      const int bound = bound_of(batch, work, index);
      return {.token = token,
              .sequence = first + holder,
              .bound = __shfl_sync(kWholeWarp, bound, holder)};
    }
    first = is_guess ? 0 : first + 32;
    if (first >= batch.size) return {.token = token};
  }
}

}  // namespace quire::cuda::sm90::mla_indexer
