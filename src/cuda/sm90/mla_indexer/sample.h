// SPDX-License-Identifier: Apache-2.0
// The order in which the tiles of a piece are scored. Of a long one, every stride-th comes first: a
// sample that all of the piece is in, whatever changes along it. The rank of the sample's j-th best key
// then keeps all but a few keys out of the pool, and nothing is scored twice for it.
#pragma once

#include "cuda/sm90/mla_indexer/config.h"
#include "quire/host_device.h"

namespace quire::cuda::sm90::mla_indexer {

// 0: the piece has room in a pool, or must do without.
QUIRE_HOST_DEVICE inline int sample_stride(int tiles) {
  if (tiles * IndexConfig::kTileKeys <= IndexConfig::kPoolLimit) return 0;
  const int least = (tiles + IndexConfig::kSampleTiles - 1) / IndexConfig::kSampleTiles;
  return least > IndexConfig::kLeastStride ? least : IndexConfig::kLeastStride;
}

QUIRE_HOST_DEVICE inline int sample_tiles(int tiles, int stride) {
  return stride == 0 ? 0 : (tiles + stride - 1) / stride;
}

// The index-th tile.
QUIRE_HOST_DEVICE inline int tile_in_order(int index, int tiles, int stride) {
  if (stride == 0) return index;
  const int sampled = sample_tiles(tiles, stride);
  if (index < sampled) return index * stride;
  const int rest = index - sampled;
  return rest / (stride - 1) * stride + 1 + rest % (stride - 1);
}

}  // namespace quire::cuda::sm90::mla_indexer
