// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace quire::cuda::sm90::mla_indexer {

// How rows are given to groups of thread blocks.
struct GroupShape {
  int parts = 0;      // thread blocks of all groups, which run at once; 0: no groups
  int capacity = 0;   // keys that one may have, a multiple of a tile's
  int max_tiles = 0;  // of a row
};

inline constexpr int kMostGroups = 32;

// What thread blocks tell the others of their group. A group's heads stand one after another from the place
// of its first thread block on.
struct GroupBoard {
  static constexpr int kMostHead = 2400;
  static constexpr int kMostCodes = 8192;  // of all heads of a group

  std::uint64_t* heads = nullptr;   // [parts][kMostHead] codes; 0: none
  std::uint64_t* floors = nullptr;  // [parts]: what is not in the head is below it; 0: nothing
  std::uint64_t* tails = nullptr;   // [parts][capacity] codes, a group's from its first one's on
  std::uint32_t* tail_counts = nullptr;  // [parts]: of a group, its first one's
  std::uint32_t* arrivals = nullptr;     // [parts]: at the barrier of a group, its first one's
};

}  // namespace quire::cuda::sm90::mla_indexer
