// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/hopper/mla_indexer/cluster/cluster.cuh"
#include "cuda/hopper/mla_indexer/cluster/find_row.cuh"

namespace quire::cuda::hopper {

// What a thread block has of a row: every size-th tile of its cluster's.
struct RowShare {
  Cluster cluster;
  ClusterRow row;
  int first_tile = 0;  // of the cluster
  int tiles = 0;

  // The index-th of several groups of about the same length.
  __device__ void take_group(int index, int groups, int capacity) {
    const int each = (row.tiles() + groups - 1) / groups;
    first_tile = index * each;
    tiles = max(0, min(min(each, row.tiles() - first_tile), capacity / kIndexTileKeys));
  }
  __device__ int own_tiles() const {
    return (tiles - cluster.rank + cluster.size - 1) / cluster.size;
  }
  __device__ int tile(int index) const { return first_tile + cluster.rank + index * cluster.size; }
  __device__ int first_key() const { return first_tile * kIndexTileKeys; }
};

}  // namespace quire::cuda::hopper
