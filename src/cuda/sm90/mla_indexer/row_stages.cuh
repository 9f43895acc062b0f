// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/mla_indexer/shared.cuh"

namespace quire::cuda::sm90::mla_indexer {

// What the tiles and the queries of one row go through (tile_loader.cuh, tile_scorer.cuh), as in IndexShared.
template <IndexConfig kConfig> struct alignas(1024) RowStages {
  alignas(1024) std::byte tiles[kConfig.stages][kConfig.tile_bytes()];
  alignas(1024) std::byte queries[1][kConfig.query_bytes()];
  alignas(1024) std::byte
      half_queries[1][kConfig.multiplies_halves() ? 2 * kConfig.query_bytes() : 16];
  alignas(128) float key_scales[2][kConfig.stages][4 * box_scales(16)];
  TileMark marks[2][kConfig.stages];
  alignas(16) float weights[1][HeadSums<kConfig>::kWeightFloats];  // half of q_scale
  RingBarriers<kConfig.stages> ring;
  FullBarrier queries_full;
  FullBarrier queries_landed[1];

  __device__ void init_stages() {
    ring.init(1, 4);        // a tile is one warpgroup's
    queries_full.init(32);  // a warp copies the weights
    queries_landed[0].init(1);
  }
};

}  // namespace quire::cuda::sm90::mla_indexer
