// SPDX-License-Identifier: Apache-2.0
// The thread blocks of a cluster: barriers and stores to each other's shared memory. A kernel that was
// started without a cluster is alone.
#pragma once

#include <cstdint>

#include "cuda/common/thread/block_address.cuh"
#include "cuda/sm90/mla_indexer/row_share.cuh"

namespace quire::cuda::sm90::mla_indexer {

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

  // To the same place as the local address, in thread block `to`.
  __device__ void store(std::uint32_t local, int to, std::uint32_t value) const {
    const std::uint32_t place =
        to == rank ? local : address_in_block(local, static_cast<std::uint32_t>(to));
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(place), "r"(value) : "memory");
  }
};

__device__ inline Cluster cluster_of(const RowShare& share) {
  return {.rank = share.rank, .size = share.size};
}

}  // namespace quire::cuda::sm90::mla_indexer
