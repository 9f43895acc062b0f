// SPDX-License-Identifier: Apache-2.0
// From the shared memory of a block to the same place of the other block of its cluster. What arrives
// counts as bytes at a barrier there; who waits at it sees them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/thread/block_address.cuh"

namespace quire::cuda::sm90::sparse_mla {

__device__ inline std::uint32_t rank_in_pair() {
  std::uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

class PairWriter {
 public:
  __device__ explicit PairWriter(std::uint32_t rank)
      : rank_(rank), to_other_(address_in(rank ^ 1) - address_in(rank)) {}

  __device__ int rank() const { return static_cast<int>(rank_); }

  // By the copy engine, which a fence has shown them. (By stores to the other block, 16 bytes a lane,
  // sending costs more than twice as much.)
  __device__ void send(const std::byte* place, int bytes, const FullBarrier& full) const {
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
        "[%0], [%1], %2, [%3];" ::"r"(shared_address(place) + to_other_),
        "r"(shared_address(place)), "r"(bytes), "r"(shared_address(&full) + to_other_)
        : "memory");
  }
  // To both blocks.
  __device__ void store(std::uint32_t* place, std::uint32_t word, const FullBarrier& full) const {
    *place = word;
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                     shared_address(place) + to_other_),
                 "r"(word), "r"(shared_address(&full) + to_other_)
                 : "memory");
  }

 private:
  // Of the dynamic shared memory of a block.
  __device__ static std::uint32_t address_in(std::uint32_t rank) {
    extern __shared__ __align__(1024) std::byte memory[];
    return address_in_block(memory, rank);
  }

  std::uint32_t rank_;
  std::uint32_t to_other_;  // between the two blocks' addresses of a place
};

}  // namespace quire::cuda::sm90::sparse_mla
