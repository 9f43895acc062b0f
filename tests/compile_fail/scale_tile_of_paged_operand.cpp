// SPDX-License-Identifier: Apache-2.0
// The scales of a paged cache are not a run of consecutive rows.
// expect: no matching function for call to .*make_scale_tile
#include "quire/contiguous_operand.h"
#include "quire/paged_kv_operand.h"
#include "quire/tile_builders.h"

#if defined(QUIRE_MUST_FAIL)
using Operand = quire::PagedKvOperand<quire::KvOperandConfig{.page_size = 64, .granularity = 128}>;
#else
using Operand = quire::ContiguousOperand<quire::KvOperandConfig{.granularity = 128}>;
#endif

quire::TileDescriptor tile_of(const Operand& operand) {
  return quire::make_scale_tile(operand, 64);
}
