// SPDX-License-Identifier: Apache-2.0
// Few query rows: shared memory of a block, and what its roles agree on.
//
// Operands are swapped: keys, then value columns, are the 64 rows of an instruction, and the query rows
// its columns, so that 16 of them cost a quarter of what 64 would, and leave their room to keys that are
// on their way. Keys and values are A operands out of registers: rows of e4m3 stand in shared memory as bytes
// (unit_rows.cuh), and are converted between the two.
//
// Tiles of 64 keys, four units of 16, have numbers that run on over the borders of items.
//
//   load     four warps   walk the block's part of the work; warp w: unit w of every tile, row by row
//   scores   two groups   group n % 2: scoresᵀ = K · qᵀ, softmax, weights; warp w has unit w
//   values   two groups   group g: sumsᵀ of columns [256g, 256g + 256) += Vᵀ · weights, and the output
//
//   full[unit]             the bytes of the copy engine, and every lane that copies scales
//   empty[unit]            the eight warps of the values; whoever has scores of it has left weights before
//   queries                every thread of the scores, before an item's queries are written and after it
//   weights_full[group]    every thread that wrote them, with the rows' factors
//   weights_empty[group]   the eight warps of the values
//   refs_full[group]       its threads: references are left for the other group, and the other's read
//   stats_full, _empty     the item's sums, from every thread of the scores to every one of the values
//   items                  full: a loading thread; empty: the threads of all sixteen warps, when the item is
//                          finished
//
// Where plain stores are handed on, or plain loads are done, every thread that made some arrives: racecheck does not follow one
// lane's arrival for its warp. It costs nothing that could be measured.
#pragma once

#include <cstddef>

#include "cuda/common/split_kv/scan_line.cuh"
#include "cuda/sm90/mla_decode/latent/params.h"
#include "cuda/sm90/mla_decode/latent/shared.cuh"
#include "cuda/sm90/mla_decode/swap_ab/config.h"

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
  // The largest scale of each warp's keys, as bits, and what scales are relative to (scale_power.cuh).
  alignas(16) std::uint32_t scale_tops[kGroups][SwapAbConfig::kGroupWarps];
  int scale_powers[kGroups];
  int stats_powers[kGroups];
  float factors[kGroups][kConfig.rows];  // of the sums, before the tile's products are added
  float stats_refs[kGroups][kConfig.rows];
  float stats_sums[kGroups][SwapAbConfig::kGroupWarps][kConfig.rows];
  int live[kConfig.units];  // the first ones of its keys are the sequence's and on a page
  LatentItem items[SwapAbConfig::kItems];
  LineScanShared line;
  FullBarrier full[kConfig.units];
  EmptyBarrier empty[kConfig.units];
  RingBarriers<SwapAbConfig::kItems> item_ring;
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
    item_ring.init(1, 32 * 2 * SwapAbConfig::kWarps);
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

}  // namespace quire::cuda::sm90::mla_decode
