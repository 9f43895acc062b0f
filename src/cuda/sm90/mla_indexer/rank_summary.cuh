// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/mla_indexer/team.cuh"

namespace quire::cuda::sm90::mla_indexer {

// Of a set of ranks.
struct RankSummary {
  std::uint32_t least = 0xffffffff;
  std::uint32_t greatest = 0;
  unsigned count = 0;

  __device__ void add(const RankSummary& other) {
    least = min(least, other.least);
    greatest = max(greatest, other.greatest);
    count += other.count;
  }
  // Of the sets of a whole warp's lanes.
  __device__ RankSummary of_warp() const {
    return {.least = __reduce_min_sync(kWholeWarp, least),
            .greatest = __reduce_max_sync(kWholeWarp, greatest),
            .count = __reduce_add_sync(kWholeWarp, count)};
  }
};

}  // namespace quire::cuda::sm90::mla_indexer
