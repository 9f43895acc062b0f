// SPDX-License-Identifier: Apache-2.0
// A ring of shared-memory stages between one producer and its consumers, possibly of several thread
// blocks of a cluster: a full and an empty barrier per stage.
#pragma once

#include <cutlass/arch/barrier.h>

#include <cstdint>

namespace quire::cuda {

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

}  // namespace quire::cuda
