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

  // Slabs of 64 columns, each a swizzled tile.
  alignas(1024) std::byte q[kConfig.q_buffers][kConfig.key_slabs() * kQuerySlabBytes];
  // In the order of use: K0, K1, V0, K2, V1, … across tiles.
  alignas(1024) std::byte blocks[kConfig.stages][kConfig.stage_slabs() * kSlabBytes];
  // Bit g: keys 8g … 8g + 7 of the K block have no page.
  std::uint32_t holes[kConfig.stages];
  PrefillTile tiles[kTileRing];
  RingBarriers<kConfig.stages> ring;
  RingBarriers<kConfig.q_buffers> q_ring;
  RingBarriers<kTileRing> tile_ring;

  static_assert(kConfig.stages >= 4);

  __device__ void init() {
    ring.init(1, kConfig.consumers);
    q_ring.init(1, kConfig.consumers);
    tile_ring.init(1, 32 + 128 * kConfig.consumers);  // the warp that loads V reads it too
  }
};

}  // namespace quire::cuda::hopper
