// SPDX-License-Identifier: Apache-2.0
// Shared memory of a CTA. A swizzle column is 64 columns: rows of 128 bytes, 128-byte swizzle.
#pragma once

#include <type_traits>

#include "cuda/common/mma/wgmma.cuh"
#include "cuda/common/pipeline/ring.cuh"
#include "cuda/sm90/sparse_mla/config.h"

namespace quire::cuda::sm90::sparse_mla {

inline constexpr int kQuerySwizzleColumnBytes = SparseConfig::kHeads * kRowBytes;

// Rows as they stand in the cache, on their way: split p (16 bytes) of row r's latent columns is at
// p ^ (4 if r is odd), so that lanes which read 64 bytes of two neighbours meet no bank twice.
template <int kKeys, int kStages> struct RawRows {
  alignas(16) std::byte latent[kStages][kKeys][SparseConfig::kLatent];
  alignas(16) std::byte rope[kStages][kKeys][2 * SparseConfig::kRope];
  float4 scales[kStages][kKeys];  // of 128 columns each, or one of the row
};
// The same of whole rows: the first 512 bytes as above, then the last ones, and their e8m0 scales. Each warp turns those
// of its rows into pairs of bf16 before it decodes a tile.
template <int kKeys, int kStages> struct WholeRawRows {
  static constexpr int kTail = 64;
  static constexpr int kPowers = 8;  // of a row; the last is nobody's

  alignas(16) std::byte latent[kStages][kKeys][SparseConfig::kLatent];
  alignas(16) std::byte tail[kStages][kKeys][kTail];
  alignas(8) std::uint8_t powers[kStages][kKeys][kPowers];
  alignas(8) std::uint32_t scales[kKeys][kPowers];
};
struct NoRawRows {};

template <typename Variant> struct RawRowsOf {
  static constexpr SparseConfig kConfig = Variant::kConfig;
  using Bytes = std::conditional_t<kConfig.has_rope(), RawRows<kConfig.keys, kConfig.raw_stages>,
                                   WholeRawRows<kConfig.keys, kConfig.raw_stages>>;
  using Type = std::conditional_t<kConfig.raw_stages != 0, Bytes, NoRawRows>;
};

template <int kStages, int kBytes> struct RopeColumns {
  alignas(1024) std::byte stages[kStages][kBytes];

  __device__ std::byte* operator[](int stage) { return stages[stage]; }
};
struct NoRopeColumns {};

// What the warpgroup that scores tells the one that sums the right half, thread by thread: both have
// the same rows. The weights lie as A operands do.
template <int kKeys> struct Handover {
  uint4 weights[kKeys / 16][SparseConfig::kWarpgroup];
  float2 keep[SparseConfig::kWarpgroup];       // what to multiply earlier sums by
  float2 finish[2][SparseConfig::kWarpgroup];  // and the finished ones; of two work tiles in turn
};

// Bit k of a tile's words: its row k holds a key. Each gathering warp writes those of its own rows.
template <int kKeys, int kStages> union TileMasks {
  std::uint32_t words[kStages][kKeys / 32];
  std::conditional_t<kKeys == 64, std::uint16_t, std::uint8_t> parts[kStages][SparseConfig::kWarps];

  __device__ std::uint32_t word(int stage, int i) const { return words[stage][i]; }
};
// The same from the warps of two blocks: eight bits of each part.
template <int kStages> struct PairMasks {
  alignas(16) std::uint32_t parts[kStages][2 * SparseConfig::kWarps];

  __device__ std::uint32_t word(int stage, int i) const {
    const uint4 four = reinterpret_cast<const uint4*>(parts[stage])[i];
    return four.x | four.y << 8 | four.z << 16 | four.w << 24;
  }
};

// What those who attend have to know of a work tile. Two of them, taken in turn: the next one is written
// while the last one's rows are stored.
struct WorkTileInfo {
  int num_tiles;  // 0: no key; kNobody: its token is nobody's; kNoWorkTile: there are no more
  int split;      // kWhole: there is nothing to be merged
  int token;
  int first_head;

  __device__ bool is_split() const { return split >= 0; }
};
inline constexpr int kNobody = -1;
inline constexpr int kNoWorkTile = -2;
inline constexpr int kWhole = -1;

// By a whole warp, of which the lane reads that gives the info's place back: racecheck then sees the order.
__device__ inline WorkTileInfo read_info(const WorkTileInfo& info) {
  WorkTileInfo read{};
  if (threadIdx.x % 32 == 0) read = info;
  return {.num_tiles = __shfl_sync(0xffffffff, read.num_tiles, 0),
          .split = __shfl_sync(0xffffffff, read.split, 0),
          .token = __shfl_sync(0xffffffff, read.token, 0),
          .first_head = __shfl_sync(0xffffffff, read.first_head, 0)};
}

// Where a CTA's next tile stands.
template <typename Variant> struct TilePlace {
  RingPosition<Variant::kConfig.stages> half;
  RingPosition<Variant::kConfig.rope_stages> rope;

  __device__ void advance() {
    half.advance();
    rope.advance();
  }
};

template <typename Variant> struct SparseShared {
  static constexpr SparseConfig kConfig = Variant::kConfig;
  static constexpr int kStages = kConfig.stages;
  static constexpr int kSwizzleColumnBytes = kConfig.swizzle_column_bytes();
  static constexpr int kHalfBytes = SparseConfig::kHalfSwizzleColumns * kSwizzleColumnBytes;
  static constexpr int kWarps = SparseConfig::kWarps;
  using Raw = typename RawRowsOf<Variant>::Type;
  using Rope =
      std::conditional_t<kConfig.has_rope(), RopeColumns<kConfig.rope_stages, kSwizzleColumnBytes>,
                         NoRopeColumns>;

  alignas(1024) std::byte q[kConfig.swizzle_columns()][kQuerySwizzleColumnBytes];
  alignas(1024) std::byte left[kStages][kHalfBytes];
  alignas(1024) std::byte right[kStages][kHalfBytes];
  Rope rope;
  Raw raw;
  Handover<kConfig.keys> handover;
  std::conditional_t<kConfig.blocks == 1, TileMasks<kConfig.keys, kStages>, PairMasks<kStages>>
      masks;
  WorkTileInfo work_tiles[2];
  int ends[2][2][kWarps];  // of each stream's tiles that a warp found in use; of two work tiles
  RingBarriers<1> work_tile_ring;  // q and a info
  RingBarriers<kStages> left_ring;
  RingBarriers<kStages> right_ring;
  RingBarriers<kConfig.rope_stages> rope_ring;
  // Parts of a tile that a warp of `sum` has fenced.
  EmptyBarrier left_fenced[kStages];
  EmptyBarrier right_fenced[kStages];
  EmptyBarrier rope_fenced[kConfig.rope_stages];

  __device__ void init() {
    // Copies arrive for each thread, and for each warp's part of the mask; decoded rows warp by warp.
    const bool is_copied = kConfig.rows == RowKind::bf16;
    const int arrivals = is_copied ? SparseConfig::kWarpgroup : kWarps;
    const int readers = kConfig.blocks * kWarps;
    work_tile_ring.init(1, kWarps + SparseConfig::kWarpgroup);
    left_ring.init(is_copied ? arrivals + kWarps : arrivals, readers);
    right_ring.init(arrivals, readers);
    if constexpr (kConfig.has_rope()) rope_ring.init(arrivals, readers);
    if constexpr (kConfig.sum_fences()) {
      for (EmptyBarrier& fenced : left_fenced) fenced.init(1);
      for (EmptyBarrier& fenced : right_fenced) fenced.init(1);
      if constexpr (kConfig.has_rope()) {
        for (EmptyBarrier& fenced : rope_fenced) fenced.init(1);
      }
    }
  }
};

// A warp is done with a part of a tile. Who fills it again, in either block, waits for all of them.
template <typename Variant> __device__ inline void give_back(EmptyBarrier& empty) {
  __syncwarp();
  if constexpr (Variant::kConfig.blocks == 1) {
    if (threadIdx.x % 32 == 0) empty.arrive();
  } else {
    const std::uint32_t block = threadIdx.x % 32;
    if (block < Variant::kConfig.blocks) empty.arrive(block, 1);
  }
}

// Rows written by other threads are read by the tensor cores next. Of two blocks, who writes rows has
// fenced already, since TMA reads them too.
template <typename Variant> __device__ inline void fence_rows() {
  if constexpr (Variant::kConfig.blocks == 1) cutlass::arch::fence_view_async_shared();
}

// Until a part of a tile is there for the tensor cores.
template <typename Variant, int kStages>
__device__ inline void wait_rows(RingBarriers<kStages>& ring, EmptyBarrier (&fenced)[kStages],
                                 const RingPosition<kStages>& at) {
  if constexpr (Variant::kConfig.sum_fences()) {
    fenced[at.stage].wait(at.phase);
  } else {
    ring.wait_full(at);
    fence_rows<Variant>();
  }
}

// Named barriers.
enum SparseBarrier : std::uint32_t {
  kHandoverFull,   // the score warpgroup arrives, the sum warpgroup waits
  kHandoverEmpty,  // the other way round
  kScoresDone,     // the next tile's scores are computed: the tensor cores are free for a while
  kGatherers,      // all of the gathering warpgroup
};

}  // namespace quire::cuda::sm90::sparse_mla
