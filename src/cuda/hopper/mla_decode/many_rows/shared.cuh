// SPDX-License-Identifier: Apache-2.0
// Many query rows over rows of e4m3: shared memory of a block, and what its roles agree on.
//
// Rows of e4m3 are converted once, on their way through the registers of the warps that score: there they are the
// A operands of scoresᵀ = K · qᵀ, and from there they go to shared memory as values of f16.
//
//   load     four warps   walk the cluster's part of the work; warp w: unit w of every tile
//   scores   one group    scoresᵀ, values, softmax, weights; warp w has unit w
//   sums     two groups   group g: columns [256g, 256g + 256) of sums += weights · V, and the output
//
//   full[unit], empty[unit]  as for few rows; a unit is given back by the warp that converted it
//   values_empty[place]      the group that summed them
//   weights_full             every thread of the scores: a tile's weights, factors and values are there
//   weights_empty            every thread of the sums has read them
//   stats_full, _empty       the item's sums of weights, from the scores to the sums
//   items                    full: a loading thread; empty: the threads of scores and sums, when the item is
//                            finished
#pragma once

#include "cuda/hopper/flash_attention/decode/scan_line.cuh"
#include "cuda/hopper/latent_attention/params.h"
#include "cuda/hopper/latent_attention/shared.cuh"
#include "cuda/hopper/mla_decode/few_rows/shared.cuh"
#include "cuda/hopper/mla_decode/many_rows/config.h"

namespace quire::cuda::hopper {

template <FewRowsConfig kConfig> struct ManyRowsShared {
  static constexpr int kSlabBytes = kConfig.rows * kRowBytes;         // of q
  static constexpr int kValueSlabBytes = FewRowsConfig::kKeys * kRowBytes;

  // As for few rows.
  alignas(1024) std::byte q[FewRowsConfig::kBlocks + 1][kSlabBytes];
  // Rows of 64 columns, swizzle b128. Of 16 columns, pairs 0, 2, 4, 6 stand before pairs 1, 3, 5, 7.
  alignas(1024) std::byte values[ManyRows::kPlaces][ManyRows::kPartSlabs][kValueSlabBytes];
  alignas(1024) std::byte weights[kWgmmaRows * kRowBytes];  // rows of 64 keys, f16, swizzle b128
  alignas(1024) std::byte units[kConfig.units][kConfig.unit_bytes()];
  float scales[kConfig.units][FewRowsConfig::kUnitKeys];
  alignas(16) float query_factors[kConfig.rows];  // from a score to powers of two
  alignas(16) float refs[kConfig.rows];           // what exponents are relative to, in powers of two
  int2 seen[kConfig.rows];  // first and end of the keys that a row sees, from the item's first on
  int2 all_see;             // that all of them do
  float tops[ManyRows::kScoreWarps][kConfig.rows];
  float factors[kWgmmaRows];  // of the sums, before the tile's products are added
  alignas(16) std::uint32_t scale_tops[ManyRows::kScoreWarps];
  int has_factors;  // otherwise they are ones
  int stats_power;
  float stats_refs[kConfig.rows];
  float stats_sums[ManyRows::kScoreWarps][kConfig.rows];
  int live[kConfig.units];
  LatentItem items[FewRowsConfig::kItems];
  LineScanShared line;
  FullBarrier full[kConfig.units];
  EmptyBarrier empty[kConfig.units];
  RingBarriers<FewRowsConfig::kItems> item_ring;
  EmptyBarrier values_empty[ManyRows::kPlaces];
  EmptyBarrier weights_full;
  EmptyBarrier weights_empty;
  EmptyBarrier stats_full;
  EmptyBarrier stats_empty;

  __device__ void init(bool copies_scales) {
    constexpr int kScoreThreads = 32 * ManyRows::kScoreWarps;
    constexpr int kSumThreads = 128 * ManyRows::kSumGroups;
    for (int unit = 0; unit < kConfig.units; ++unit) {
      full[unit].init(copies_scales ? 33 : 1);
      empty[unit].init(32);
    }
    item_ring.init(1, kScoreThreads + kSumThreads);
    for (EmptyBarrier& place : values_empty) place.init(128);
    weights_full.init(kScoreThreads);
    weights_empty.init(kSumThreads);
    stats_full.init(kScoreThreads);
    stats_empty.init(kSumThreads);
  }
};

// Part `part` of a block's tile `tile`: where its values stand, and which round of the places it is.
struct ValuePlace {
  __device__ ValuePlace(int tile, int part) {
    const auto number = static_cast<unsigned>(ManyRows::kParts * tile + part);
    place = static_cast<int>(number % ManyRows::kPlaces);
    phase = number / ManyRows::kPlaces & 1;
  }

  int place;
  std::uint32_t phase;
};

}  // namespace quire::cuda::hopper
