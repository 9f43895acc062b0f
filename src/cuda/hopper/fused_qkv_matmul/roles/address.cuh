// SPDX-License-Identifier: Apache-2.0
// Three warps: find where each token's K row stands in the pages, one tile ahead of the stores.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/kv_offset.cuh"
#include "cuda/hopper/fused_qkv_matmul/shared.cuh"
#include "cuda/hopper/fused_qkv_matmul/tile_position.cuh"

namespace quire::cuda::hopper {

template <TileConfig kConfig>
__device__ void address_role(const TileParams& params, TileShared<kConfig>& shared, int thread) {
  RingPosition<2> at;
  TilePositions<kConfig> positions(params);
  for (TilePosition tile; positions.next(tile); at.advance()) {
    shared.kv_ring.wait_empty(at);
    for (int row = thread; row < kConfig.tokens(); row += shared.kAddressThreads) {
      shared.kv_offsets[at.stage][row] = kv_offset(params.outputs, tile.token + row);
    }
    shared.kv_ring.full[at.stage].arrive();
  }
}

}  // namespace quire::cuda::hopper
