// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace quire::cuda::hopper {

inline constexpr int kMaxCluster = 16;

// Of a set of ranks.
struct RankSummary {
  std::uint32_t least = 0xffffffff;
  std::uint32_t greatest = 0;
  unsigned count = 0;
};

// Where a row is longer than a thread block can hold, or has more thread blocks than a cluster, several
// clusters have a group of its keys each, and leave the best of it here, in order of position.
struct GroupLists {
  RankSummary* summaries = nullptr;   // [rows][groups]
  std::uint32_t* ranks = nullptr;     // [rows][groups][stride]; absent behind the last
  std::int32_t* positions = nullptr;  // the same
  int groups = 1;
  int stride = 0;  // top_k, rounded up

  static constexpr int stride_of(int top_k) { return (top_k + 127) / 128 * 128; }
};

// How rows are given to clusters.
struct ClusterShape {
  int size = 0;      // thread blocks of a cluster, 1 to 16; 0: rows are not taken whole
  int groups = 1;    // clusters of a row
  int capacity = 0;  // keys of the longest group, a multiple of a tile's
  int writers = 1;   // thread blocks that join the groups of a row
};

}  // namespace quire::cuda::hopper
