// SPDX-License-Identifier: Apache-2.0
// Few query rows: shared memory of a block, and what its roles agree on.
//
// Operands are swapped: keys, then value columns, are the 64 rows of an instruction, and the query rows
// its columns, so that 16 of them cost a quarter of what 64 would, and leave their room to keys that are
// on their way. Keys and values are A operands out of registers: rows of e4m3 stand in shared memory as bytes
// (shared.cuh), and are converted between the two.
//
// Tiles of 64 keys, four units of 16, have numbers that run on over the borders of work tiles.
//
//   load     four warps   walk the block's part of the work; warp w: unit w of every tile, row by row
//   scores   two groups   group n % 2: scoresᵀ = K · qᵀ, softmax, weights; warp w has unit w
//   values   two groups   group g: sumsᵀ of columns [256g, 256g + 256) += Vᵀ · weights, and the output
//
//   full[unit]             the bytes of TMA copies, and every lane that copies scales
//   empty[unit]            the eight warps of the values; whoever has scores of it has left weights before
//   queries                every thread of the scores, before a work tile's queries are written and after it
//   weights_full[group]    every thread that wrote them, with the rows' factors
//   weights_empty[group]   the eight warps of the values
//   refs_full[group]       its threads: references are left for the other group, and the other's read
//   stats_full, _empty     the work tile's sums, from every thread of the scores to every one of the values
//   work_tile_ring         full: a loading thread; empty: the threads of all sixteen warps, when the work tile is
//                          finished
//
// Where plain stores are handed on, or plain loads are done, every thread that made some arrives: racecheck does not follow one
// lane's arrival for its warp. It costs nothing that could be measured.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/common/split_kv/find_work.cuh"
#include "cuda/sm90/mla_decode/latent/shared.cuh"
#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/variants.h"

namespace quire::cuda::sm90::mla_decode {

template <SwapAbConfig kConfig> struct SwapAbShared {
  static constexpr int kSwizzleColumnBytes = kConfig.rows * kRowBytes;
  static constexpr int kUnitKeys = SwapAbConfig::kUnitKeys;
  static constexpr int kGroups = SwapAbConfig::kGroups;

  // Rows of 64 columns, swizzle b128; rope the last. For e4m3: f16, in the order of the keys' operands
  // (operands.cuh); the rope part as the cache's, bf16 or f16 in that order.
  alignas(1024) std::byte q[SwapAbConfig::kBlocks + 1][kSwizzleColumnBytes];
  // Rows of 64 keys, bf16 or f16, swizzle b128; one for each group of columns that has its own scales, or
  // one.
  alignas(1024) std::byte weights[kGroups][kConfig.scale_groups()][kSwizzleColumnBytes];
  alignas(1024) std::byte units[kConfig.units][kConfig.unit_bytes()];
  float scales[kConfig.units][kUnitKeys];  // of rows whose scales stand in a tensor of their own
  float query_factors[kConfig.rows];       // of e4m3 rows: from a score to powers of two
  float tops[kGroups][SwapAbConfig::kGroupWarps][kConfig.rows];
  float refs[kGroups][kConfig.rows];  // what exponents are relative to, in powers of two
  // The largest scale of each warp's keys, as bits, and what scales are relative to (running_max.cuh).
  alignas(16) std::uint32_t scale_tops[kGroups][SwapAbConfig::kGroupWarps];
  int scale_powers[kGroups];
  int stats_powers[kGroups];
  float factors[kGroups][kConfig.rows];  // of the sums, before the tile's products are added
  float stats_refs[kGroups][kConfig.rows];
  float stats_sums[kGroups][SwapAbConfig::kGroupWarps][kConfig.rows];
  int live[kConfig.units];  // the first ones of its keys are the sequence's and on a page
  LatentWorkTile work_tiles[SwapAbConfig::kWorkTiles];
  WorkScanShared work_scan;
  FullBarrier full[kConfig.units];
  EmptyBarrier empty[kConfig.units];
  RingBarriers<SwapAbConfig::kWorkTiles> work_tile_ring;
  EmptyBarrier queries;
  EmptyBarrier weights_full[kGroups];
  EmptyBarrier weights_empty[kGroups];
  EmptyBarrier refs_full[kGroups];
  EmptyBarrier stats_full;
  EmptyBarrier stats_empty;

  __device__ void init(bool copies_scales) {
    for (int unit = 0; unit < kConfig.units; ++unit) {
      full[unit].init(copies_scales ? 33 : 1);
      empty[unit].init(SwapAbConfig::kWarps);
    }
    work_tile_ring.init(1, 32 * 2 * SwapAbConfig::kWarps);
    for (int group = 0; group < kGroups; ++group) {
      weights_full[group].init(32 * SwapAbConfig::kGroupWarps);
      weights_empty[group].init(SwapAbConfig::kWarps);
      refs_full[group].init(32 * SwapAbConfig::kGroupWarps);
    }
    queries.init(32 * SwapAbConfig::kWarps);
    stats_full.init(32 * SwapAbConfig::kWarps);
    stats_empty.init(32 * SwapAbConfig::kWarps);
  }
};

// Unit number `number` of a block's: where it stands, and which round of the ring it is.
template <SwapAbConfig kConfig> struct UnitPlace {
  __device__ UnitPlace(int tile, int unit) {
    const auto number = static_cast<unsigned>(SwapAbConfig::kTileUnits * tile + unit);
    place = static_cast<int>(number % kConfig.units);
    phase = number / kConfig.units & 1;
  }

  // At most a round further.
  __device__ void advance(int units) {
    place += units;
    if (place < kConfig.units) return;
    place -= kConfig.units;
    phase ^= 1;
  }

  int place;
  std::uint32_t phase;
};

// Which of its group's tiles number `tile` of a block is, as a phase.
__device__ inline std::uint32_t group_phase(int tile) {
  return static_cast<std::uint32_t>(tile / SwapAbConfig::kGroups) & 1;
}

// By whole warps.
__device__ inline void arrive_by_warp(EmptyBarrier& barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier.arrive();
}

// All `threads` that meet at named barrier `id` learn whether `is_so` holds for every one of them.
__device__ inline bool barrier_all(bool is_so, int threads, std::uint32_t id) {
  std::uint32_t all;
  asm volatile(
      "{\n"
      ".reg .pred own, all;\n"
      "setp.ne.u32 own, %1, 0;\n"
      "barrier.cta.red.and.pred all, %2, %3, own;\n"
      "selp.u32 %0, 1, 0, all;\n"
      "}"
      : "=r"(all)
      : "r"(static_cast<std::uint32_t>(is_so)), "r"(id), "r"(threads)
      : "memory");
  return all != 0;
}

// A block's barriers are made by its first warp. The warps that load wait for that one alone, not for the rest of the
// block: from knowing their part of the work they go on to the first copy in code without jumps. (Code that runs once is
// mostly waited for.)

struct MadeBarriers {
  // Named barriers, and who meets there: the warps that load and the first one; all others.
  static constexpr std::uint32_t kForLoads = 3;
  static constexpr std::uint32_t kForOthers = 4;
  static constexpr int kLoadThreads = 32 * (SwapAbConfig::kGroupWarps + 1);
  static constexpr int kOtherThreads = 32 * 2 * SwapAbConfig::kWarps;
};

// By all warps but those that load.
template <SwapAbConfig kConfig>
__device__ inline void make_barriers(SwapAbShared<kConfig>& shared, bool copies_scales) {
  if (threadIdx.x < 32) {
    if (threadIdx.x == 0) {
      shared.init(copies_scales);
      cutlass::arch::fence_barrier_init();
    }
    __syncwarp();
    cutlass::arch::NamedBarrier::arrive(MadeBarriers::kLoadThreads, MadeBarriers::kForLoads);
  }
  cutlass::arch::NamedBarrier::sync(MadeBarriers::kOtherThreads, MadeBarriers::kForOthers);
}

// By the warps that load.
__device__ inline void await_barriers() {
  cutlass::arch::NamedBarrier::sync(MadeBarriers::kLoadThreads, MadeBarriers::kForLoads);
}

// What a thread has of a tile's scores, keys × query rows: keys lane / 4 and lane / 4 + 8 of its warp's
// unit, and query rows 8j + 2 (lane % 4) + e.

template <SwapAbConfig kConfig> struct ThreadRows {
  static constexpr int kScores = kConfig.rows / 2;
  static constexpr int kThreadRows = kConfig.rows / 4;  // row 2j + e is 8j + 2 (lane % 4) + e

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static constexpr int row_of(int score) { return score / 4 * 2 + score % 2; }
  __device__ static int row(int index) { return index / 2 * 8 + lane() % 4 * 2 + index % 2; }
  // Of the unit, the thread's first; the second stands 8 below it.
  __device__ static int key() { return lane() / 4; }
  // Of a row, over the thread's two keys, in the units of the products.
  __device__ static float own_top(const float (&scores)[kScores], int index) {
    return fmaxf(scores[index / 2 * 4 + index % 2], scores[index / 2 * 4 + index % 2 + 2]);
  }
};

// How a unit of 16 rows stands in shared memory, so that eight rows' splits of 16 bytes are in different banks. Spaced
// out by boxes wider than the rows they would be too, but memory gives 4 % less then (289 against 279 µs for 1.2 GB that
// nobody uses).

// Swizzle columns of 128 bytes, swizzle b128.
struct SwizzleColumnRows {
  static constexpr int kSwizzleColumnBytes = SwapAbConfig::kUnitKeys * 128;
  // Of split `chunk` of a row.
  __device__ static int offset(int row, int chunk) {
    return chunk / 8 * kSwizzleColumnBytes + swizzle_column_offset(row, chunk);
  }
  // From the place of a split, `chunks` along the row. Bits of the two must not meet: from one of the first splits, in
  // steps of as many.
  __device__ static int further(int place, int chunks) {
    return (place ^ chunks % 8 * 16) + chunks / 8 * kSwizzleColumnBytes;
  }
};

// kRopeChunk: a row's first split of rope columns.
template <SwapAbKind kKind> struct UnitRows;

template <> struct UnitRows<SwapAbKind::bf16> : SwizzleColumnRows {
  static constexpr int kColumnBytes = 2;
  static constexpr int kRopeChunk = 64;
};

template <> struct UnitRows<SwapAbKind::fp8> : SwizzleColumnRows {
  static constexpr int kColumnBytes = 1;
  static constexpr int kRopeChunk = 32;
  // Rope columns of e4m3, rows of 64 bytes, stand behind the swizzle columns of the others: swizzle b64.
  static constexpr int kTail = LatentConfig::kLatent / 128 * kSwizzleColumnBytes;
  __device__ static int tail(int row, int chunk) { return kTail + tail_offset(row, chunk); }
};

// An odd number of 16 bytes apart.
struct SpacedRows {
  static constexpr int kColumnBytes = 1;
  __device__ static int offset(int row, int chunk) {
    return row * SwapAbConfig::kFp8Pitch + chunk * 16;
  }
  __device__ static int further(int place, int chunks) { return place + chunks * 16; }
};

// As in memory.
template <> struct UnitRows<SwapAbKind::fp8_block> : SpacedRows {
  static constexpr int kScalesChunk = 32;  // f32 [4]
  static constexpr int kRopeChunk = 33;
};

// By boxes that are wider than the shorter ones: with many query rows memory is not the limit.

}  // namespace quire::cuda::sm90::mla_decode
