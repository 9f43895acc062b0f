// SPDX-License-Identifier: Apache-2.0
// Half of a 192-row tile is one and a half pages of 64.
// expect: the part of the tile that a CTA loads must fit the pages
#include "quire/tile_loads.h"

#if defined(QUIRE_MUST_FAIL)
constexpr int kTileRows = 192;
#else
constexpr int kTileRows = 256;
#endif

int num_loads(const quire::PagedRowIndices<kTileRows, 64, quire::CtaPair::leader>& rows) {
  return quire::k_loads(rows).count;
}
