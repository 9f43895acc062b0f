// SPDX-License-Identifier: Apache-2.0
// Attention by role: shared memory of a block, and what its roles agree on.
//
// A block has 64 query rows, all columns; where an item has more, the other block of its cluster has the
// next 64 and the same keys at about the same time, so that memory is read once. Tiles of 64 keys have
// numbers that run on over the borders of items.
//
//   load      one warp     walks the cluster's part of the work; tiles, a part of the columns at a
//                          time, into stage n % 2
//   scores    two groups   group n % 2: q · Kᵀ, softmax, weights into `weights`
//   values    two groups   group g: columns [256g, 256g + 256) of weights · V, and the output
//
//   full[stage][part]      the bytes of the copy engine
//   empty[stage][part]     four warps of the values: its product is done, and so, before it, are the
//                          scores
//   weights_full           the four warps that wrote them: the tile's weights, factors and zeros
//   weights_empty[group]   the eight warps of the values, for the group that writes next
//   refs_full[group][warp] a warp of the scores has left the maxima of its rows for the other group
//   stats_full, _empty     the item's sums, from all warps of the scores to all of the values
#pragma once

#include <cstddef>

#include "cuda/hopper/latent_attention/shared.cuh"

namespace quire::cuda::hopper {

struct ByRole {
  static constexpr int kRows = 64;  // of a block
  static constexpr int kKeys = 64;  // of a tile
  static constexpr int kSlabColumns = 64;
  static constexpr int kSlabs = (LatentConfig::kLatent + LatentConfig::kRope) / kSlabColumns;
  static constexpr int kSlabBytes = kKeys * kRowBytes;
  static constexpr int kValueSlabs = 8;
  static constexpr int kRopeSlab = 8;  // comes with part 0
  // Parts of the columns that come, and are given back, on their own: 2 or 4.
  static constexpr int kParts = 2;
  static constexpr int kPartSlabs = kValueSlabs / kParts;
  static constexpr int kStages = 2;
  static constexpr int kGroups = 2;  // of each kind
  static constexpr int kGroupWarps = 4;
  static constexpr int kItems = 3;
  static constexpr int kThreads = 128 * (2 * kGroups + 1);
  // 640 threads have 96 registers each at the start.
  static constexpr int kLoadRegisters = 32;
  static constexpr int kScoreRegisters = 64;
  static constexpr int kValueRegisters = 160;
};

struct ByRoleShared {
  using Slab = std::byte[ByRole::kSlabBytes];  // 64 rows of 128 bytes, swizzle b128

  alignas(1024) Slab q[ByRole::kSlabs];
  alignas(1024) Slab stages[ByRole::kStages][ByRole::kSlabs];
  alignas(1024) Slab weights;
  float refs[ByRole::kRows];  // what exponents are relative to, in powers of two
  // Of the sums, before the tile's products are added; a row for each group of the scores.
  float factors[ByRole::kGroups][ByRole::kRows];
  float2 stats[ByRole::kGroups][ByRole::kRows];  // (relative to, sum of weights)
  std::uint64_t valid[ByRole::kStages];          // a bit per key
  LatentItem items[ByRole::kItems];
  FullBarrier full[ByRole::kStages][ByRole::kParts];
  EmptyBarrier empty[ByRole::kStages][ByRole::kParts];
  RingBarriers<ByRole::kItems> item_ring;
  EmptyBarrier weights_full;
  EmptyBarrier weights_empty[ByRole::kGroups];
  EmptyBarrier refs_full[ByRole::kGroups][ByRole::kGroupWarps];
  EmptyBarrier stats_full;
  EmptyBarrier stats_empty;

  __device__ void init() {
    constexpr int kWarps = ByRole::kGroups * ByRole::kGroupWarps;  // of each kind
    for (int stage = 0; stage < ByRole::kStages; ++stage) {
      for (int part = 0; part < ByRole::kParts; ++part) {
        full[stage][part].init(1);
        empty[stage][part].init(ByRole::kGroupWarps);
      }
    }
    item_ring.init(1, 2 * kWarps);
    weights_full.init(ByRole::kGroupWarps);
    for (int group = 0; group < ByRole::kGroups; ++group) {
      weights_empty[group].init(kWarps);
      for (int warp = 0; warp < ByRole::kGroupWarps; ++warp) refs_full[group][warp].init(1);
    }
    stats_full.init(kWarps);
    stats_empty.init(kWarps);
  }
};

// Tile n of a block: where it stands, and which round of the ring it is.
__device__ inline int stage_of(int tile) {
  return tile % ByRole::kStages;
}
__device__ inline std::uint32_t phase_of(int tile) {
  return static_cast<std::uint32_t>(tile / ByRole::kStages) & 1;
}

// The order in which the values are done with the parts, and new ones come: both groups' first ones.
__device__ constexpr int part_of(int turn) {
  return turn / ByRole::kGroups + turn % ByRole::kGroups * ByRole::kParts / ByRole::kGroups;
}

// By whole warps.
__device__ inline void arrive_once(EmptyBarrier& barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier.arrive();
}

}  // namespace quire::cuda::hopper
