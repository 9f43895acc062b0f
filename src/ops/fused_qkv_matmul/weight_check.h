// SPDX-License-Identifier: Apache-2.0
// A projection weight in any of its formats.
#pragma once

#include <cstdint>

#include "ops/argument.h"
#include "quire/weight.h"

namespace quire::ops {

// Data, scale, zeros, perm and group_size of a weight [rows, columns]. Errors name 'weight' for the
// data.
void check_weight(Arguments& check, const Weight& weight, std::int64_t rows, std::int64_t columns);

}  // namespace quire::ops
