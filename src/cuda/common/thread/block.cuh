// SPDX-License-Identifier: Apache-2.0
// Where a thread stands: warpgroup, warp, block of the cluster. Values that are equal in a warp are
// broadcast, so that the compiler keeps them in uniform registers.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include <cute/arch/cluster_sm90.hpp>

namespace quire::cuda {

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

}  // namespace quire::cuda
