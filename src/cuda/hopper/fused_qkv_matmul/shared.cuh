// SPDX-License-Identifier: Apache-2.0
// Shared memory of the tile kernel.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/scales.cuh"
#include "cuda/hopper/tile/ring.cuh"
#include "cuda/hopper/tile/wgmma.cuh"

namespace quire::cuda::hopper {

template <TileConfig kConfig> struct TileShared {
  alignas(1024) std::byte x[kConfig.stages][kConfig.kept_tokens * kRowBytes];
  alignas(1024) std::byte weight[kConfig.stages][kConfig.tile_n * kRowBytes];
  // Two tiles in turn: the byte offset of each token's K row in the pool, -1 where nothing is
  // stored, and what a column gets added, 0 without a bias.
  std::int64_t kv_offsets[2][kConfig.tokens()];
  alignas(16) float bias[2][kConfig.tile_n];
  SharedScales<kConfig> scales;
  RingBarriers<kConfig.stages> ring;
  RingBarriers<2> kv_ring;

  __device__ void init() {
    ring.init(1 + 32 * kConfig.scale_warps(), kConfig.consumers * kConfig.cluster);
    kv_ring.init(kConfig.address_threads(), 128 * kConfig.consumers);
  }
};

}  // namespace quire::cuda::hopper
