// SPDX-License-Identifier: Apache-2.0
// row_offsets on the CPU: one running sum of integers, the same on every target.
#pragma once

#include "quire/ops/row_offsets.h"

namespace quire::cpu {

void row_offsets(const RowOffsetsArgs& args);

}  // namespace quire::cpu
