// SPDX-License-Identifier: Apache-2.0
// Apart from the op: QUIRE_CHECK holds pairs that were brought from a GPU against the same rules (device_check.cpp).
#pragma once

#include "ops/argument.h"
#include "quire/ops/copy_pages.h"

namespace quire::ops {

// Page ids that are on the host: in range, no target twice, no target a source.
void check_page_pairs(const Arguments& check, const TensorView& pairs, std::int64_t num_pages);

}  // namespace quire::ops
