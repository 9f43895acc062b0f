// SPDX-License-Identifier: Apache-2.0
// The value w(n, k) of a projection weight, exactly, for every format of quire/weight.h.
#pragma once

#include <cstdint>
#include <vector>

#include "quire/weight.h"

namespace quire::reference {

// Row n in the stored column order [K]; column k multiplies x[perm[k]] where there is a perm.
std::vector<double> dequantize_row(const Weight& weight, std::int64_t row);

// The column of x that stored column k multiplies.
std::int64_t input_column(const Weight& weight, std::int64_t column);

}  // namespace quire::reference
