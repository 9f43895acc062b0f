// SPDX-License-Identifier: Apache-2.0
// Variables of the other thread blocks of a cluster.
#pragma once

#include <cute/arch/cluster_sm90.hpp>

namespace quire::cuda::hopper {

// The same variable of another thread block of the cluster.
__device__ inline unsigned load_from_rank(const unsigned& variable, int rank) {
  const auto local = static_cast<unsigned>(__cvta_generic_to_shared(&variable));
  unsigned remote = 0;
  unsigned value = 0;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(remote) : "memory");
  return value;
}

// The sum over the first `ranks` thread blocks. Eight loads are in flight together.
__device__ inline unsigned sum_of_ranks(const unsigned& variable, int ranks) {
  unsigned sum = 0;
#pragma unroll 1
  for (int first = 0; first < ranks; first += 8) {
    unsigned values[8] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (first + i < ranks) values[i] = load_from_rank(variable, first + i);
    }
#pragma unroll
    for (const unsigned value : values) sum += value;
  }
  return sum;
}

}  // namespace quire::cuda::hopper
