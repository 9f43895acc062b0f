// SPDX-License-Identifier: Apache-2.0
// Many query rows over rows of e4m3: shared memory of a block, and what its roles agree on.
//
// Rows of e4m3 are converted on their way through the registers of the warps that score: there they are the A operands
// of scoresᵀ = K · qᵀ, and from there they go to shared memory as values of f16.
//
//   load     four warps   walk the cluster's part of the work; warp w: unit w of every tile
//   scores   one group    scoresᵀ and values; warp w has unit w
//   sums     two groups   softmax of half of the rows each; group g: columns [256g, 256g + 256) of sums += weights · V,
//                         and the output
//
//   full[unit], empty[unit]  as for few rows; a unit is given back by the warp that converted it
//   scores_full              every thread of the scores: a tile's scores are there
//   values_full              the same: its values
//   values_empty[part]       the group that summed them
//   scores_empty             every thread of the sums: they, and the weights in their place, have been read
//   items                    full: a loading thread; empty: the threads of scores and sums, when the item is finished
#pragma once

#include "cuda/common/split_kv/scan_line.cuh"
#include "cuda/sm90/mla_decode/fp8_wgmma/config.h"
#include "cuda/sm90/mla_decode/latent/params.h"
#include "cuda/sm90/mla_decode/latent/shared.cuh"
#include "cuda/sm90/mla_decode/swap_ab/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

template <SwapAbConfig kConfig> struct Fp8WgmmaShared {
  static constexpr int kSwizzleColumnBytes = kConfig.rows * kRowBytes;  // of q
  static constexpr int kValueSwizzleColumnBytes = SwapAbConfig::kKeys * kRowBytes;

  // As for few rows.
  alignas(1024) std::byte q[SwapAbConfig::kBlocks + 1][kSwizzleColumnBytes];
  // Rows of 64 columns, swizzle b128. Of 16 columns, pairs 0, 2, 4, 6 stand before pairs 1, 3, 5, 7.
  alignas(1024)
      std::byte values[Fp8Wgmma::kParts][Fp8Wgmma::kPartSwizzleColumns][kValueSwizzleColumnBytes];
  // A tile's scores (score_place), and then its weights: rows of 64 keys, f16, swizzle b128.
  alignas(1024) float scores[kWgmmaRows * SwapAbConfig::kKeys];
  alignas(1024) std::byte units[kConfig.units][kConfig.unit_bytes()];
  float scales[kConfig.units][SwapAbConfig::kUnitKeys];
  float query_factors[kConfig.rows];                   // from a score to powers of two
  alignas(16) float key_factors[SwapAbConfig::kKeys];  // of a tile's weights
  int4 tile_live;                                      // of its units
  float factors[kWgmmaRows];  // of sums, before a tile's products are added
  float2 stats[kWgmmaRows];   // (relative to, sum of weights) of an item's rows
  int live[kConfig.units];
  LatentItem items[SwapAbConfig::kItems];
  LineScanShared line;
  FullBarrier full[kConfig.units];
  EmptyBarrier empty[kConfig.units];
  RingBarriers<SwapAbConfig::kItems> item_ring;
  EmptyBarrier values_empty[Fp8Wgmma::kParts];
  EmptyBarrier scores_full;
  EmptyBarrier values_full;
  EmptyBarrier scores_empty;

  __device__ std::byte* weights() { return reinterpret_cast<std::byte*>(scores); }

  __device__ void init(bool copies_scales) {
    constexpr int kScoreThreads = 32 * Fp8Wgmma::kScoreWarps;
    for (int unit = 0; unit < kConfig.units; ++unit) {
      full[unit].init(copies_scales ? 33 : 1);
      empty[unit].init(32);
    }
    item_ring.init(1, kScoreThreads + Fp8Wgmma::kSumThreads);
    for (EmptyBarrier& part : values_empty) part.init(128);
    scores_full.init(kScoreThreads);
    values_full.init(kScoreThreads);
    scores_empty.init(Fp8Wgmma::kSumThreads);
  }
};

// Where a score stands, so that neither those who write 8 keys of four rows nor those who read 16 of two meet in a
// bank.
__device__ inline int score_place(int row, int key) {
  return row * SwapAbConfig::kKeys + (key ^ (row / 2 % 4 * 8 ^ row % 2 * 16));
}

}  // namespace quire::cuda::sm90::mla_decode
