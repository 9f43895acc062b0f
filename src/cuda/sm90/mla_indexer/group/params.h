// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/sm90/mla_indexer/config.h"
#include "cuda/sm90/mla_indexer/params.h"
#include "quire/host_device.h"

namespace quire::cuda::sm90::mla_indexer {

// How rows are given to groups of CTAs.
struct GroupShape {
  int parts = 0;      // CTAs of all groups, which run at once; 0: no groups
  int capacity = 0;   // keys that one may have, a multiple of a tile's
  int max_tiles = 0;  // of a row
};

inline constexpr int kMostGroups = 32;

// What CTAs tell the others of their group. A group's heads stand one after another from the place
// of its first CTA on.
struct GroupBoard {
  static constexpr int kMostHead = 2400;
  static constexpr int kMostCodes = 8192;  // of all heads of a group

  std::uint64_t* heads = nullptr;   // [parts][kMostHead] codes; 0: none
  std::uint64_t* floors = nullptr;  // [parts]: what is not in the head is below it; 0: nothing
  std::uint64_t* tails = nullptr;   // [parts][capacity] codes, a group's from its first one's on
  std::uint32_t* tail_counts = nullptr;  // [parts]: of a group, its first one's
  std::uint32_t* arrivals = nullptr;     // [parts]: at the barrier of a group, its first one's
};

// The border between host code and one compiled kernel whose rows are groups': src/cuda/variants.cmake
// instantiates it.

template <typename Variant>
void launch_index_group(const IndexParams& params, const GroupBoard& board, const GroupShape& shape,
                        cudaStream_t stream);

// How CTAs are cut into groups: one for each row, and of the others as many as befits the row's tiles.
// Where all rows together have t tiles, no CTA gets more than t / spare of them, rounded up.
struct GroupCuts {
  unsigned spare;  // CTAs without one for each row
  unsigned total;  // tiles of all rows, at least 1

  // CTAs before those of a row.
  QUIRE_HOST_DEVICE int begin(unsigned row, unsigned tiles_before) const {
    return static_cast<int>(row + spare * tiles_before / total);
  }
};

// Ranks of a CTA's own keys stand beside the stages.
inline constexpr int kMaxGroupKeys = 18432;
template <int kHeads, int kDims> struct IndexGroup {
  static constexpr IndexConfig kConfig{
      .heads = kHeads, .tokens = 1, .dims = kDims, .stages = kDims == 128 ? 15 : 24};
};

}  // namespace quire::cuda::sm90::mla_indexer
