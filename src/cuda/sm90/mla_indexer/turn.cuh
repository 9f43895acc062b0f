// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/pipeline/ring.cuh"
#include "cuda/sm90/mla_indexer/config.h"

namespace quire::cuda::sm90::mla_indexer {

// To a warpgroup's next stage.
template <int kStages> __device__ inline void advance_by_turn(RingPosition<kStages>& at) {
  at.stage += IndexConfig::kWarpgroups;
  if (at.stage >= kStages) {
    at.stage -= kStages;
    at.phase ^= 1;
  }
}

}  // namespace quire::cuda::sm90::mla_indexer
