// SPDX-License-Identifier: Apache-2.0
// Pipeline stages between producer and consumers, and consumers that take turns at the tensor cores.
#pragma once

#include <cutlass/arch/barrier.h>

#include <cstdint>

namespace quire::cuda {

// A ring of shared-memory stages between one producer and its consumers, possibly of several thread
// blocks of a cluster: a full and an empty barrier per stage.

using FullBarrier = cutlass::arch::ClusterTransactionBarrier;
using EmptyBarrier = cutlass::arch::ClusterBarrier;

// Where a role stands in the ring. The phase bit flips with every round.
template <int kStages> struct RingPosition {
  int stage = 0;
  std::uint32_t phase = 0;

  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

template <int kStages> struct RingBarriers {
  FullBarrier full[kStages];
  EmptyBarrier empty[kStages];

  // By one thread, before a fence_barrier_init and a barrier of all blocks in the cluster.
  __device__ void init(int producer_arrivals, int consumer_arrivals) {
    for (int stage = 0; stage < kStages; ++stage) {
      full[stage].init(producer_arrivals);
      empty[stage].init(consumer_arrivals);
    }
  }
  // The producer's wait: the first round finds every stage empty.
  __device__ void wait_empty(const RingPosition<kStages>& at) {
    empty[at.stage].wait(at.phase ^ 1);
  }
  __device__ void wait_full(const RingPosition<kStages>& at) { full[at.stage].wait(at.phase); }
};

// Consumer warpgroups take turns at the tensor cores: while one's products run, the others work on
// theirs in registers. One named barrier per warpgroup, signalled by the one before it.

template <int kWarpgroups> class WarpgroupOrder {
 public:
  // The first turn is free: the last warpgroup signals the first one's barrier.
  __device__ explicit WarpgroupOrder(int warpgroup) : warpgroup_(warpgroup) {
    if (kWarpgroups > 1 && warpgroup == kWarpgroups - 1) pass_on();
  }
  __device__ void wait() const {
    if constexpr (kWarpgroups > 1) {
      cutlass::arch::NamedBarrier::sync(kThreads, static_cast<std::uint32_t>(warpgroup_));
    }
  }
  __device__ void pass_on() const {
    if constexpr (kWarpgroups > 1) {
      const int next = warpgroup_ == kWarpgroups - 1 ? 0 : warpgroup_ + 1;
      cutlass::arch::NamedBarrier::arrive(kThreads, static_cast<std::uint32_t>(next));
    }
  }

 private:
  static constexpr int kThreads = 256;  // who waits, who signals
  int warpgroup_;
};

}  // namespace quire::cuda
