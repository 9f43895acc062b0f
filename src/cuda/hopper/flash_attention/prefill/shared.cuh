// SPDX-License-Identifier: Apache-2.0
// Shared memory of the prefill kernel.
#pragma once

#include "cuda/hopper/flash_attention/prefill/schedule.cuh"
#include "cuda/hopper/tile/ring.cuh"
#include "cuda/hopper/tile/wgmma.cuh"

namespace quire::cuda::hopper {

template <PrefillConfig kConfig> struct PrefillShared {
  static constexpr int kTileRing = 3;
  static constexpr int kQuerySlabBytes = kConfig.rows() * kRowBytes;
  static constexpr int kSlabBytes = kConfig.block_keys * kRowBytes;

  // Slabs of 64 columns, each a swizzled tile. A finished tile's rows leave through its own q.
  alignas(1024) std::byte q[PrefillConfig::kQueryBuffers][kConfig.key_slabs() * kQuerySlabBytes];
  // In the order of use: K0, K1, V0, K2, V1, … across tiles.
  alignas(1024) std::byte blocks[kConfig.stages][kConfig.stage_slabs() * kSlabBytes];
  // Bit g: keys 8g … 8g + 7 of the K block have no page.
  std::uint32_t holes[kConfig.stages];
  PrefillTile tiles[kTileRing];
  RingBarriers<kConfig.stages> ring;
  RingBarriers<PrefillConfig::kQueryBuffers> q_ring;
  RingBarriers<kTileRing> tile_ring;

  static_assert(kConfig.value_slabs() <= kConfig.key_slabs());

  __device__ void init() {
    ring.init(1, kConfig.consumers);
    q_ring.init(1, 128 * kConfig.consumers);
    tile_ring.init(1, 128 * kConfig.consumers);
  }
};

}  // namespace quire::cuda::hopper
