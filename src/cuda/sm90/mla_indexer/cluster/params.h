// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/sm90/mla_indexer/params.h"

namespace quire::cuda::sm90::mla_indexer {

inline constexpr int kMaxCluster = 16;

// How rows are given to clusters.
struct ClusterShape {
  int size = 0;      // CTAs of a cluster, 1 to 16; 0: rows are not taken whole
  int capacity = 0;  // keys of the longest row, a multiple of a tile's
};

// The border between host code and one compiled kernel that takes whole rows: src/cuda/variants.cmake
// instantiates it.

template <typename Variant>
void launch_index_cluster(const IndexParams& params, const ClusterShape& shape,
                          cudaStream_t stream);

}  // namespace quire::cuda::sm90::mla_indexer
