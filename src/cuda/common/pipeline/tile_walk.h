// SPDX-License-Identifier: Apache-2.0
// Which output tiles a persistent block (or cluster) computes, in an order that keeps what the whole
// grid reads at a time small: bands of `band` tile rows, walked column by column.
#pragma once

#include "quire/host_device.h"

namespace quire::cuda {

struct TileGrid {
  int rows = 0;     // tiles (of a cluster) along M
  int columns = 0;  // tiles along N
  int band = 1;     // rows walked together
};

struct TileAt {
  int row;
  int column;
};

QUIRE_HOST_DEVICE inline TileAt tile_at(const TileGrid& grid, int index) {
  const int per_band = grid.band * grid.columns;
  const int first = index / per_band * grid.band;
  const int height = grid.band < grid.rows - first ? grid.band : grid.rows - first;
  const int within = index % per_band;
  return {.row = first + within % height, .column = within / height};
}

}  // namespace quire::cuda
