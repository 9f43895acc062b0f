// SPDX-License-Identifier: Apache-2.0
// Prefix sums of the keys each sequence has.
#pragma once

#include "quire/ops/row_offsets.h"

namespace quire::reference {

void row_offsets(const RowOffsetsArgs& args);

}  // namespace quire::reference
