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

// Bytes that a packed weight's storage must have at least, by what packing recorded of it. Fails
// where that is nothing that pack_weight could have recorded.
std::int64_t packed_size(const Arguments& check, const Weight& weight);

}  // namespace quire::ops
