// SPDX-License-Identifier: Apache-2.0
// What a block of many query rows over rows of e4m3 consists of.
#pragma once

#include "cuda/sm90/mla_decode/swap_ab/config.h"

namespace quire::cuda::sm90::mla_decode {

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

}  // namespace quire::cuda::sm90::mla_decode
