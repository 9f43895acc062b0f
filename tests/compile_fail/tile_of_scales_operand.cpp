// SPDX-License-Identifier: Apache-2.0
// Scales have no tile descriptors.
// expect: no matching function for call to .*make_tile
#include "quire/paged_kv_operand.h"
#include "quire/paged_scales_operand.h"
#include "quire/tile_builders.h"

constexpr quire::KvOperandConfig kConfig{.page_size = 64, .granularity = 128};

#if defined(QUIRE_MUST_FAIL)
using Operand = quire::PagedScalesOperand<kConfig>;
#else
using Operand = quire::PagedKvOperand<kConfig>;
#endif

quire::TileDescriptor tile_of(const Operand& operand) {
  return quire::make_tile(operand, {.box_rows = 64});
}
