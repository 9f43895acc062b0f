// SPDX-License-Identifier: Apache-2.0
// The oracle of select_blocks, and a judge for results that were scored in fp32.
//
// The op's own result is defined by scores computed in double and rounded once to fp32. A backend sums in fp32, so
// blocks whose scores differ by less than the error of such sums may change places: block_selection_fault accepts exactly
// those sets.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "quire/ops/select_blocks.h"

namespace quire::reference {

void select_blocks(const SelectBlocksArgs& args);

// What is wrong with a backend's row [max_blocks] of a token and head; empty if it is a legitimate result.
std::string block_selection_fault(const SelectBlocksArgs& args, std::int64_t token,
                                  std::int64_t head, std::span<const std::int32_t> selected);

}  // namespace quire::reference
