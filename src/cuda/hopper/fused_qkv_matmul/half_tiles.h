// SPDX-License-Identifier: Apache-2.0
// Tiles half as wide as the others, for the end of a launch: whole ones alone would leave some clusters idle in
// the last round.
#pragma once

#include "quire/host_device.h"

namespace quire::cuda::hopper {

// Which half tile a cluster computes when it has had its share of `whole` tiles (cluster, cluster + clusters, …)
// and `had` halves. The clusters without a tile in the last round of whole ones compute two halves each
// meanwhile, then every cluster one in each round.
QUIRE_HOST_DEVICE inline int half_tile(int whole, int clusters, int cluster, int had) {
  const int busy = whole % clusters;  // in that round; 0: all of them
  const int idle = busy == 0 ? 0 : clusters - busy;
  const bool was_idle = idle > 0 && cluster >= busy;
  if (was_idle && had < 2) return cluster - busy + had * idle;
  return 2 * idle + cluster + (had - (was_idle ? 2 : 0)) * clusters;
}

}  // namespace quire::cuda::hopper
