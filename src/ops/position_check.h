// SPDX-License-Identifier: Apache-2.0
// position_ids, u32 [sections, tokens], on the host: every one names a row of freqs_cis.
#pragma once

#include <cstdint>

#include "ops/argument.h"

namespace quire::ops {

void check_positions(const Arguments& check, const TensorView& position_ids, std::int64_t num_rows);

}  // namespace quire::ops
