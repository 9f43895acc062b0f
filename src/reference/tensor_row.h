// SPDX-License-Identifier: Apache-2.0
// The last axis of a tensor as doubles.
#pragma once

#include <cstdint>
#include <vector>

#include "quire/tensor_view.h"

namespace quire::reference {

std::vector<double> load_row(const TensorView& tensor);                    // [columns]
std::vector<double> load_row(const TensorView& tensor, std::int64_t row);  // [rows, columns]
std::vector<double> load_row(const TensorView& tensor, std::int64_t outer,
                             std::int64_t row);  // [outer, rows, columns]

}  // namespace quire::reference
