// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/hopper/mla_indexer/cluster/cluster.cuh"
#include "cuda/hopper/mla_indexer/cluster/find_row.cuh"

namespace quire::cuda::hopper {

// What a thread block has of a row: every size-th tile.
struct RowShare {
  Cluster cluster;
  ClusterRow row;
  int tiles = 0;  // of the row

  __device__ int own_tiles() const {
    return (tiles - cluster.rank + cluster.size - 1) / cluster.size;
  }
  __device__ int tile(int index) const { return cluster.rank + index * cluster.size; }
};

}  // namespace quire::cuda::hopper
