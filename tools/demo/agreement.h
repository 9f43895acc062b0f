// SPDX-License-Identifier: Apache-2.0
// Whether two results are the same, and where they are not.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "quire/tensor_view.h"

namespace quire::tools::demo {

enum class Closeness : std::uint8_t {
  bits,      // the same kernel must give the same bits, wherever the pages lie
  rounding,  // another kernel may round differently: two units in the last place, integers exactly
};

// Nothing, or the first place that differs: "out[3, 1] is 0.5, the oracle says 0.25".
std::optional<std::string> find_difference(std::string_view name, const TensorView& actual,
                                           const TensorView& expected, Closeness closeness);

// One number: `size` is the magnitude that the unit in the last place is taken at, if it is larger
// than `expected`. NaN and infinities must be the same.
bool is_close(double actual, double expected, DType dtype, double size);

}  // namespace quire::tools::demo
