// SPDX-License-Identifier: Apache-2.0
// Consumer warpgroups take turns at the tensor cores: while one's products run, the others work on
// theirs in registers. One named barrier per warpgroup, signalled by the one before it.
#pragma once

#include <cutlass/arch/barrier.h>

namespace quire::cuda {

template <int kWarpgroups> class Turns {
 public:
  // The first turn is free: the last warpgroup signals the first one's barrier.
  __device__ explicit Turns(int warpgroup) : warpgroup_(warpgroup) {
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
