// SPDX-License-Identifier: Apache-2.0
// Tiles narrower than the others, for the end of a launch: whole ones alone would leave some clusters idle in the
// last round.
//
//   columns of the grid   to its right
//   whole                 whole
//   whole                 narrow         the last `rows` rows
#pragma once

#include "cuda/common/pipeline/tile_walk.h"

namespace quire::cuda {

struct TailTiles {
  int rows = 0;
  int columns = 0;
  int whole_columns = 0;  // to the right of the grid, above
};

// Which narrow tile a cluster computes when it has had its share of `whole` tiles (cluster, cluster + clusters, …)
// and `had` narrow ones. The clusters without a tile in the last round of whole ones compute `meanwhile` each, then
// every cluster one in each round.
QUIRE_HOST_DEVICE inline int tail_tile(int whole, int clusters, int cluster, int had,
                                       int meanwhile) {
  const int busy = whole % clusters;  // in that round; 0: all of them
  const int idle = busy == 0 ? 0 : clusters - busy;
  const bool was_idle = idle > 0 && cluster >= busy;
  if (was_idle && had < meanwhile) return cluster - busy + had * idle;
  return meanwhile * idle + cluster + (had - (was_idle ? meanwhile : 0)) * clusters;
}

}  // namespace quire::cuda
