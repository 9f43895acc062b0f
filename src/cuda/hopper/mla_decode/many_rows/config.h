// SPDX-License-Identifier: Apache-2.0
// What a block of many query rows over rows of e4m3 consists of.
#pragma once

#include "cuda/hopper/mla_decode/few_rows/config.h"

namespace quire::cuda::hopper {

struct ManyRows {
  static constexpr int kScoreWarps = 4;
  static constexpr int kSumGroups = 2;
  static constexpr int kThreads = 128 * (2 + kSumGroups);

  // Values of a tile, as the products read them, come in four parts of 128 columns. There is room for so many.
  static constexpr int kParts = 4;
  static constexpr int kPlaces = 4;
  static constexpr int kPartColumns = LatentConfig::kLatent / kParts;
  static constexpr int kPartSlabs = kPartColumns / LatentConfig::kSlabColumns;
  static constexpr int kPartSums = kPartColumns / 2;  // of a thread
  static constexpr int kGroupParts = kParts / kSumGroups;

  // The first column of a part, in the order in which they are written and summed: the groups' first parts, then their
  // second ones.
  __device__ static constexpr int first_column(int part) {
    return (part % kSumGroups * kGroupParts + part / kSumGroups) * kPartColumns;
  }
};

}  // namespace quire::cuda::hopper
