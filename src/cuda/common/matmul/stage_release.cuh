// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/matmul/shared.cuh"

namespace quire::cuda {

// By a whole warpgroup: the stage may be filled again, by every block that multicasts into it. `thread` of the
// warpgroup's 128.
template <TileConfig kConfig>
__device__ void release(TileShared<kConfig>& shared, int stage, int thread) {
  if constexpr (kConfig.cluster == 1) {
    if (thread == 0) shared.ring.empty[stage].arrive();
  } else {
    if (thread < kConfig.cluster) shared.ring.empty[stage].arrive(thread);
  }
}

template <TileConfig kConfig> __device__ void release(TileShared<kConfig>& shared, int stage) {
  release<kConfig>(shared, stage, static_cast<int>(threadIdx.x % 128));
}

}  // namespace quire::cuda
