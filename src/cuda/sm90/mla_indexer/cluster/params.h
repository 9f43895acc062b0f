// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace quire::cuda::sm90::mla_indexer {

inline constexpr int kMaxCluster = 16;

// How rows are given to clusters.
struct ClusterShape {
  int size = 0;      // thread blocks of a cluster, 1 to 16; 0: rows are not taken whole
  int capacity = 0;  // keys of the longest row, a multiple of a tile's
};

}  // namespace quire::cuda::sm90::mla_indexer
