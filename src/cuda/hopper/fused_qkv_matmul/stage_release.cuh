// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/hopper/fused_qkv_matmul/shared.cuh"

namespace quire::cuda::hopper {

// By a whole warpgroup: the stage may be filled again, by every block that multicasts into it.
template <TileConfig kConfig> __device__ void release(TileShared<kConfig>& shared, int stage) {
  const int thread = static_cast<int>(threadIdx.x % 128);
  if constexpr (kConfig.cluster == 1) {
    if (thread == 0) shared.ring.empty[stage].arrive();
  } else {
    if (thread < kConfig.cluster) shared.ring.empty[stage].arrive(thread);
  }
}

}  // namespace quire::cuda::hopper
