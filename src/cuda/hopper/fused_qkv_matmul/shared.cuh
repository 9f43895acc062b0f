// SPDX-License-Identifier: Apache-2.0
// Shared memory of the tile kernel.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/config.h"
#include "cuda/hopper/tile/ring.cuh"
#include "cuda/hopper/tile/wgmma.cuh"

namespace quire::cuda::hopper {

template <TileConfig kConfig> struct TileShared {
  alignas(1024) std::byte x[kConfig.stages][kConfig.kept_tokens * kRowBytes];
  alignas(1024) std::byte weight[kConfig.stages][kConfig.tile_n * kRowBytes];
  // Byte offset of each token's K row in the pool, -1 where nothing is stored; two tiles in turn.
  std::int64_t kv_offsets[2][kConfig.tokens()];
  RingBarriers<kConfig.stages> ring;
  RingBarriers<2> kv_ring;

  static constexpr int kAddressThreads = 96;

  __device__ void init() {
    ring.init(1, kConfig.consumers * kConfig.cluster);
    kv_ring.init(kAddressThreads, 128 * kConfig.consumers);
  }
};

}  // namespace quire::cuda::hopper
