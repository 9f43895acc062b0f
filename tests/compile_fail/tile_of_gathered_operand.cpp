// SPDX-License-Identifier: Apache-2.0
// Rows that were chosen by index are no matrix: a tile of them does not exist.
// expect: no matching function for call to .*make_tile
#include "quire/gathered_operand.h"
#include "quire/paged_kv_operand.h"
#include "quire/tile_builders.h"

#if defined(QUIRE_MUST_FAIL)
using Operand = quire::GatheredOperand<quire::PagedKvOperand>;
#else
using Operand = quire::PagedKvOperand;
#endif

quire::TileDescriptor tile_of(const Operand& operand) {
  return quire::make_tile(operand, {.box_rows = 64});
}
