// SPDX-License-Identifier: Apache-2.0
// Attention of more than 64 query rows: shared memory of a block, and what its roles agree on.
//
// A block has 64 query rows, all columns; the other block of its cluster has the next 64 and the same
// keys: each loads half of every tile for both. Tiles of 64 keys have numbers that run on over the
// borders of items.
//
//   load      one warp     walks the cluster's part of the work; tiles, a quarter of the columns at a
//                          time, into stage n % 2 of both blocks
//   scores    two groups   group n % 2: q · Kᵀ, softmax, weights into `weights`
//   values    two groups   group g: columns [256g, 256g + 256) of weights · V, and the output
//
//   full[stage][quarter]   the bytes of the copy engine, from both blocks
//   empty[stage][quarter]  four warps of the values in each block: its product is done, and so, before
//                          it, are the scores
//   weights_full           the four warps that wrote them: the tile's weights, factors and zeros
//   weights_empty[group]   the eight warps of the values, for the group that writes next
//   refs_full[group][warp] a warp of the scores has left the maxima of its rows for the other group
//   stats_full, _empty     the item's sums, from all warps of the scores to all of the values
#pragma once

#include <cstddef>

#include "cuda/hopper/latent_attention/shared.cuh"

namespace quire::cuda::hopper {

struct ManyRows {
  static constexpr int kCluster = 2;
  static constexpr int kRows = 64;  // of a block
  static constexpr int kKeys = 64;  // of a tile
  static constexpr int kSlabColumns = 64;
  static constexpr int kSlabs = (LatentConfig::kLatent + LatentConfig::kRope) / kSlabColumns;
  static constexpr int kSlabBytes = kKeys * kRowBytes;
  static constexpr int kHalfSlabs = 4;     // of a group's values
  static constexpr int kQuarters = 4;      // of the columns, two slabs each
  static constexpr int kRopeSlab = 8;      // comes with quarter 0
  static constexpr int kQuarterSlabs = 2;
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

struct ManyRowsShared {
  using Slab = std::byte[ManyRows::kSlabBytes];  // 64 rows of 128 bytes, swizzle b128

  alignas(1024) Slab q[ManyRows::kSlabs];
  alignas(1024) Slab stages[ManyRows::kStages][ManyRows::kSlabs];
  alignas(1024) Slab weights;
  float refs[ManyRows::kRows];     // what exponents are relative to, in powers of two
  float factors[ManyRows::kRows];  // of the sums, before the tile's products are added
  float2 stats[ManyRows::kGroups][ManyRows::kRows];  // (relative to, sum of weights)
  std::uint64_t valid[ManyRows::kStages];            // a bit per key
  LatentItem items[ManyRows::kItems];
  FullBarrier full[ManyRows::kStages][ManyRows::kQuarters];
  EmptyBarrier empty[ManyRows::kStages][ManyRows::kQuarters];
  RingBarriers<ManyRows::kItems> item_ring;
  EmptyBarrier weights_full;
  EmptyBarrier weights_empty[ManyRows::kGroups];
  EmptyBarrier refs_full[ManyRows::kGroups][ManyRows::kGroupWarps];
  EmptyBarrier stats_full;
  EmptyBarrier stats_empty;

  __device__ void init() {
    constexpr int kWarps = ManyRows::kGroups * ManyRows::kGroupWarps;  // of each kind
    for (int stage = 0; stage < ManyRows::kStages; ++stage) {
      for (int quarter = 0; quarter < ManyRows::kQuarters; ++quarter) {
        full[stage][quarter].init(1);
        empty[stage][quarter].init(ManyRows::kCluster * ManyRows::kGroupWarps);
      }
    }
    item_ring.init(1, 2 * kWarps);
    weights_full.init(ManyRows::kGroupWarps);
    for (int group = 0; group < ManyRows::kGroups; ++group) {
      weights_empty[group].init(kWarps);
      for (int warp = 0; warp < ManyRows::kGroupWarps; ++warp) refs_full[group][warp].init(1);
    }
    stats_full.init(kWarps);
    stats_empty.init(kWarps);
  }
};

// Tile n of a block: where it stands, and which round of the ring it is.
__device__ inline int stage_of(int tile) {
  return tile % ManyRows::kStages;
}
__device__ inline std::uint32_t phase_of(int tile) {
  return static_cast<std::uint32_t>(tile / ManyRows::kStages) & 1;
}

// The order in which the values are done with the quarters, and new ones come: both groups' first ones.
__device__ constexpr int quarter_of(int turn) {
  return turn / 2 + turn % 2 * 2;
}

// By whole warps.
__device__ inline void arrive_once(EmptyBarrier& barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier.arrive();
}

// To both blocks.
__device__ inline void arrive_everywhere(EmptyBarrier& barrier) {
  __syncwarp();
  const std::uint32_t lane = threadIdx.x % 32;
  if (lane < ManyRows::kCluster) barrier.arrive(lane);
}

}  // namespace quire::cuda::hopper
