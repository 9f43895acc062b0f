// SPDX-License-Identifier: Apache-2.0
// Many query rows over rows of e4m3 with scales in them: shared memory of a block, and what its roles agree on.
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
//   work_tile_ring           full: a loading thread; empty: the threads of scores and sums, when the work tile is finished
#pragma once

#include <cuda_fp16.h>

#include "cuda/common/split_kv/find_work.cuh"
#include "cuda/sm90/mla_decode/latent/shared.cuh"
#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/swap_ab/operands.cuh"
#include "cuda/sm90/mla_decode/swap_ab/shared.cuh"
#include "cuda/sm90/mla_decode/variants.h"

namespace quire::cuda::sm90::mla_decode {

// What a block of many query rows over rows of e4m3 consists of.

struct Fp8Wgmma {
  static constexpr int kScoreWarps = 4;
  static constexpr int kSumGroups = 2;
  static constexpr int kSumThreads = 128 * kSumGroups;
  static constexpr int kThreads = 256 + kSumThreads;

  // Values of a tile, as the products read them, are four parts of 128 columns: first one of each group that sums, then
  // another.
  static constexpr int kParts = 4;
  static constexpr int kPartColumns = LatentConfig::kLatent / kParts;
  static constexpr int kPartSwizzleColumns = kPartColumns / LatentConfig::kSwizzleColumnWidth;
  static constexpr int kPartSums = kPartColumns / 2;  // of a thread
  static constexpr int kGroupParts = kParts / kSumGroups;

  __device__ static constexpr int first_column(int part) {
    return (part % kSumGroups * kGroupParts + part / kSumGroups) * kPartColumns;
  }
};

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
  // From a score to powers of two. Of two work tiles: the next one's are written while scores of the last tile may
  // still be read. Those after it are not, since its first scores wait for scores_empty.
  float query_factors[2][kConfig.rows];
  alignas(16) float key_factors[SwapAbConfig::kKeys];  // of a tile's weights
  int4 tile_live;                                      // of its units
  float factors[kWgmmaRows];  // of sums, before a tile's products are added
  float2 stats[kWgmmaRows];   // (relative to, sum of weights) of a work tile's rows
  int live[kConfig.units];
  LatentWorkTile work_tiles[SwapAbConfig::kWorkTiles];
  WorkScanShared work_scan;
  FullBarrier full[kConfig.units];
  EmptyBarrier empty[kConfig.units];
  RingBarriers<SwapAbConfig::kWorkTiles> work_tile_ring;
  EmptyBarrier values_empty[Fp8Wgmma::kParts];
  EmptyBarrier scores_full;
  EmptyBarrier values_full;
  EmptyBarrier scores_empty;

  __device__ std::byte* weights() { return reinterpret_cast<std::byte*>(scores); }

  __device__ void init() {
    constexpr int kScoreThreads = 32 * Fp8Wgmma::kScoreWarps;
    for (int unit = 0; unit < kConfig.units; ++unit) {
      full[unit].init(1);
      empty[unit].init(32);
    }
    work_tile_ring.init(1, kScoreThreads + Fp8Wgmma::kSumThreads);
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

// Scales of a thread's two keys, 8 apart. The four of a row are divided by a power of two, which multiplies scores and
// weights in their stead, and numbers are multiplied by what is left of them: in f16, near 2^5, so that numbers of a group
// 2^22 below the row's largest still have more digits than bf16.

struct LatentKeyFactors {
  float whole[2];
  __half2 left[2][SwapAbConfig::kScaleGroups / 2];

  // Zeros, where there is no key: what stands in the place of its scales may be anything. `unit`: of the warp's keys.
  __device__ LatentKeyFactors(const LatentRowFormat& format, const std::byte* unit, int live) {
    const auto key = static_cast<int>(threadIdx.x % 32 / 4);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = key + 8 * i;
      const auto* four = reinterpret_cast<const float4*>(unit + SpacedRows::offset(row, 0) +
                                                         format.row_scales_offset_bytes);
      divide(row < live ? *four : float4{}, i);
      if (row >= live) whole[i] = 0.0F;
    }
  }

  // Of key `i`, for a group of columns.
  __device__ __half2 left_of(int i, int group) const {
    const __half2 pair = left[i][group / 2];
    return group % 2 == 0 ? __low2half2(pair) : __high2half2(pair);
  }

 private:
  static constexpr int kRaised = 5;
  static constexpr int kBias = 127;
  static constexpr int kLeast = 20;  // of the scales' exponent fields

  __device__ void divide(const float4& four, int i) {
    const float top =
        fmaxf(fmaxf(fabsf(four.x), fabsf(four.y)), fmaxf(fabsf(four.z), fabsf(four.w)));
    // The power's exponent field, and that of what it is divided by: both are normal numbers.
    const int field = max(static_cast<int>(__float_as_uint(top) >> 23), kLeast) - kRaised;
    const float inverse = __uint_as_float(static_cast<std::uint32_t>(2 * kBias - field) << 23);
    whole[i] = __uint_as_float(static_cast<std::uint32_t>(field) << 23);
    left[i][0] = __floats2half2_rn(four.x * inverse, four.y * inverse);
    left[i][1] = __floats2half2_rn(four.z * inverse, four.w * inverse);
  }
};

}  // namespace quire::cuda::sm90::mla_decode
