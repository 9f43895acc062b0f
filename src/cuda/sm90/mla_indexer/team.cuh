// SPDX-License-Identifier: Apache-2.0
// Threads that work on one row together.
#pragma once

#include <cstdint>

#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda::sm90::mla_indexer {

inline constexpr unsigned kWholeWarp = 0xffffffff;

template <int kNumThreads> struct Team {
  static constexpr int kThreads = kNumThreads;
  static constexpr int kWarps = kNumThreads / 32;

  int thread;   // of the team
  int barrier;  // a name of its own in the CTA

  __device__ void sync() const {
    asm volatile("barrier.cta.sync %0, %1;" ::"r"(barrier), "n"(kNumThreads) : "memory");
  }
  __device__ int lane() const { return thread % 32; }
  __device__ int warp() const { return thread / 32; }
  // True for all of the team if it is for one of them; a sync too.
  __device__ bool any(bool value) const {
    int result = 0;
    asm volatile(
        "{\n.reg .pred p, q;\nsetp.ne.b32 p, %1, 0;\n"
        "barrier.cta.red.or.pred q, %2, %3, p;\nselp.b32 %0, 1, 0, q;\n}"
        : "=r"(result)
        : "r"(static_cast<int>(value)), "r"(barrier), "n"(kNumThreads)
        : "memory");
    return result != 0;
  }
};

// Of an array whose threads read stretches of: a gap behind every 32 words keeps them from meeting in one
// bank.
__device__ constexpr int spread(int index) {
  return index + index / 32;
}

struct TeamSum {
  unsigned before;  // of the threads before this one
  unsigned total;
};

// warp_sums [warps]; free again after the next sync.
template <typename Threads>
__device__ inline TeamSum sum_before(const Threads& team, unsigned value, unsigned* warp_sums) {
  const unsigned inclusive = sum_up_to_lane(value, team.lane());
  if (team.lane() == 31) warp_sums[team.warp()] = inclusive;
  team.sync();
  static_assert(Threads::kWarps <= 32);
  const unsigned other = team.lane() < Threads::kWarps ? warp_sums[team.lane()] : 0;
  const unsigned before = team.lane() < team.warp() ? other : 0;
  return {.before = __reduce_add_sync(kWholeWarp, before) + inclusive - value,
          .total = __reduce_add_sync(kWholeWarp, other)};
}

// All threads of a CTA, by its own barrier. It names no number of threads, so that it is told from those
// of some of them.
template <int kNumThreads> struct BlockTeam {
  static constexpr int kThreads = kNumThreads;
  static constexpr int kWarps = kNumThreads / 32;

  int thread = static_cast<int>(threadIdx.x);

  __device__ void sync() const { __syncthreads(); }
  __device__ int lane() const { return thread % 32; }
  __device__ int warp() const { return thread / 32; }
  // True for all if it is for one of them; a sync too.
  __device__ bool any(bool value) const { return __syncthreads_or(value ? 1 : 0) != 0; }
};

}  // namespace quire::cuda::sm90::mla_indexer
