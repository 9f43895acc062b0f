// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "quire/host_device.h"

namespace quire::cuda::sm90::mla_indexer {

// How thread blocks are cut into groups: one for each row, and of the others as many as befits the row's tiles.
// Where all rows together have t tiles, no thread block gets more than t / spare of them, rounded up.
struct GroupCuts {
  unsigned spare;  // thread blocks without one for each row
  unsigned total;  // tiles of all rows, at least 1

  // Thread blocks before those of a row.
  QUIRE_HOST_DEVICE int begin(unsigned row, unsigned tiles_before) const {
    return static_cast<int>(row + spare * tiles_before / total);
  }
};

}  // namespace quire::cuda::sm90::mla_indexer
