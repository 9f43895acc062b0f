// SPDX-License-Identifier: Apache-2.0
// Where a thread stands, addresses in shared memory, values the compiler must not look through, and counters in
// global memory.
#pragma once

#include <cutlass/arch/reg_reconfig.h>
#include <cute/arch/cluster_sm90.hpp>

#include <cstdint>

namespace quire::cuda {

// Where a thread stands: warpgroup, warp, block of the cluster. Values that are equal in a warp are
// broadcast, so that the compiler keeps them in uniform registers.

__device__ inline int warp_in_block() {
  return __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
}
__device__ inline int warpgroup_in_block() {
  return __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
}

template <int kCluster> __device__ inline int rank_in_cluster() {
  if constexpr (kCluster == 1) return 0;
  return static_cast<int>(cute::block_rank_in_cluster());
}
template <int kCluster> __device__ inline int cluster_index() {
  return static_cast<int>(blockIdx.x / kCluster);
}
template <int kCluster> __device__ inline int num_clusters() {
  return static_cast<int>(gridDim.x / kCluster);
}

// All threads of all blocks; makes initialised barriers visible to them.
template <int kCluster> __device__ inline void sync_cluster() {
  if constexpr (kCluster == 1) {
    __syncthreads();
  } else {
    cute::cluster_arrive();
    cute::cluster_wait();
  }
}

// Of a place in shared memory, as instructions take it.
__device__ inline std::uint32_t shared_address(const void* place) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(place));
}

// The same place in another CTA of the cluster.
__device__ inline std::uint32_t address_in_block(std::uint32_t address, std::uint32_t rank) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
__device__ inline std::uint32_t address_in_block(const void* place, std::uint32_t rank) {
  return address_in_block(shared_address(place), rank);
}

// The same value, of which the compiler knows nothing: what is computed from it inside a loop stays
// there. (Descriptors and addresses that a loop never changes are otherwise computed before it, all of
// them, and spilled.)
__device__ inline int opaque(int value) {
  asm volatile("" : "+r"(value));
  return value;
}
__device__ inline std::uint64_t opaque(std::uint64_t value) {
  asm volatile("" : "+l"(value));
  return value;
}

// Counters in global memory by which CTAs tell each other that something is written.

// What the thread has written, or seen written, before is there for who acquires the sum.
__device__ inline void add_released(std::uint32_t* counter, std::uint32_t word) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter), "r"(word) : "memory");
}
__device__ inline std::uint32_t load_acquired(const std::uint32_t* counter) {
  std::uint32_t word;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(counter) : "memory");
  return word;
}

}  // namespace quire::cuda
