// SPDX-License-Identifier: Apache-2.0
// Shared memory of the tile kernel.
#pragma once

#include "cuda/common/matmul/dense_rows.cuh"
#include "cuda/common/matmul/granule_pair.cuh"
#include "cuda/common/matmul/scales.cuh"
#include "cuda/common/mma/wgmma.cuh"
#include "cuda/common/pipeline/ring.cuh"

namespace quire::cuda {

template <TileConfig kConfig> struct TileShared {
  alignas(1024) std::byte x[kConfig.stages][kConfig.kept_tokens * kRowBytes];
  alignas(1024) std::byte weight[kConfig.stages][kConfig.tile_n * kRowBytes];
  // One or two tiles in turn: each token's address, before and from the border between Q, K and V on, and what
  // a column gets added, 0 without a bias. A tile that needs an address for each run has the byte
  // offset of each token's K row in the pool instead, -1 where nothing is stored, and that of its first scale.
  union TokenPlaces {
    std::byte* rows[2][kConfig.tokens()];
    std::int64_t offsets[2][kConfig.tokens()];
  } places[kConfig.turns()];
  TileRoute routes[kConfig.turns()];
  alignas(16) float bias[kConfig.turns()][kConfig.tile_n];
  SharedScales<kConfig> scales;
  RingBarriers<kConfig.stages> ring;
  RingBarriers<kConfig.turns()> kv_ring;
  GranulePair<kConfig> pair;

  __device__ void init() {
    ring.init(1 + 32 * kConfig.scale_warps(), kConfig.consumers * kConfig.cluster);
    kv_ring.init(kConfig.address_threads(), 128 * kConfig.consumers);
    pair.init();
  }
};

}  // namespace quire::cuda
