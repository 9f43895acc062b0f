// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/mla_indexer/split_schedule.h"

namespace quire::cuda::sm90::mla_indexer {

struct WholeRow {
  int token = 0;      // row of q
  int sequence = -1;  // none: no sequence has the token
  int bound = 0;      // keys that it sees

  __device__ int tiles() const { return (bound + kIndexTileKeys - 1) / kIndexTileKeys; }
};

// What one of `size` thread blocks has of a row: every size-th tile.
struct RowShare {
  int rank = 0;
  int size = 1;
  WholeRow row{};
  int tiles = 0;  // of the row

  __device__ int own_tiles() const { return (tiles - rank + size - 1) / size; }
  __device__ int tile(int index) const { return rank + index * size; }
};

}  // namespace quire::cuda::sm90::mla_indexer
