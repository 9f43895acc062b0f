// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/mla_indexer/config.h"

namespace quire::cuda::sm90::mla_indexer {

// Ranks of a thread block's own keys stand beside the stages.
inline constexpr int kMaxGroupKeys = 18432;
template <int kHeads, int kDims> struct IndexGroup {
  static constexpr IndexConfig kConfig{
      .heads = kHeads, .tokens = 1, .dims = kDims, .stages = kDims == 128 ? 15 : 24};
};

}  // namespace quire::cuda::sm90::mla_indexer
