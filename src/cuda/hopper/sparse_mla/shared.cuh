// SPDX-License-Identifier: Apache-2.0
// Shared memory of a thread block. A slab is 64 rows of 128 bytes, 128-byte swizzle.
#pragma once

#include "cuda/hopper/sparse_mla/config.h"
#include "cuda/hopper/tile/ring.cuh"
#include "cuda/hopper/tile/wgmma.cuh"

namespace quire::cuda::hopper {

inline constexpr int kSlabBytes = SparseConfig::kKeys * kRowBytes;
inline constexpr int kTableSlots = 3;  // the tile in hand and two ahead

// Which rows the next tiles take.
struct RowTable {
  const std::byte* rows[kTableSlots][SparseConfig::kKeys];  // null: no key
  float4 scales[kTableSlots][SparseConfig::kKeys];          // of 128 columns each
  float rope_scales[kTableSlots][SparseConfig::kKeys];
};

// What the warpgroup that scores tells the one that sums the right half, thread by thread: both have
// the same rows. The weights lie as A operands do.
struct Handover {
  uint4 weights[4][SparseConfig::kWarpgroup];
  float2 keep[SparseConfig::kWarpgroup];       // what to multiply earlier sums by
  float2 finish[2][SparseConfig::kWarpgroup];  // and the finished ones; of two items in turn
};

// What those who attend have to know of an item. Two of them, taken in turn: the next one is written
// while the last one's rows are stored.
struct ItemNote {
  int num_tiles;  // 0: no key; kNobody: its token is nobody's; kNoItem: there are no more
  int index;
  int token;
  int first_head;
};
inline constexpr int kNobody = -1;
inline constexpr int kNoItem = -2;

// Where the n-th tile of a thread block stands: one counter, few registers.
struct TileCount {
  std::uint32_t count = 0;

  __device__ RingPosition<SparseConfig::kStages> half() const {
    static_assert(SparseConfig::kStages == 2);
    return {.stage = static_cast<int>(count & 1), .phase = count >> 1 & 1};
  }
  __device__ RingPosition<1> rope() const { return {.stage = 0, .phase = count & 1}; }
};

struct SparseShared {
  alignas(1024) std::byte q[SparseConfig::kSlabs][kSlabBytes];
  alignas(1024) std::byte left[SparseConfig::kStages][SparseConfig::kHalfSlabs][kSlabBytes];
  alignas(1024) std::byte right[SparseConfig::kStages][SparseConfig::kHalfSlabs][kSlabBytes];
  alignas(1024) std::byte rope[kSlabBytes];
  Handover handover;
  RowTable table;
  std::uint32_t masks[SparseConfig::kStages][2];  // bit k: the tile's row k holds a key
  ItemNote notes[2];
  int ends[2][4];             // of the slots that a warp found in use
  RingBarriers<1> item_ring;  // q and a note
  RingBarriers<SparseConfig::kStages> left_ring;
  RingBarriers<SparseConfig::kStages> right_ring;
  RingBarriers<1> rope_ring;

  __device__ void init() {
    constexpr int kWarps = SparseConfig::kWarpgroup / 32;
    item_ring.init(1, 2 * kWarps);
    left_ring.init(SparseConfig::kWarpgroup + 2, kWarps);  // and two for the mask's words
    right_ring.init(SparseConfig::kWarpgroup, kWarps);
    rope_ring.init(SparseConfig::kWarpgroup, kWarps);
  }
};
static_assert(sizeof(SparseShared) <= 227 * 1024);

// Named barriers.
enum SparseBarrier : std::uint32_t {
  kHandoverFull,   // the score warpgroup arrives, the sum warpgroup waits
  kHandoverEmpty,  // the other way round
  kScoresDone,     // the next tile's scores are computed: the tensor cores are free for a while
  kTable,          // all of the gathering warpgroup
};

}  // namespace quire::cuda::hopper
