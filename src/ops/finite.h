// SPDX-License-Identifier: Apache-2.0
// A search for NaN and infinity that looks at exponent bits only: weight scales are read on every
// call.
#pragma once

#include <optional>
#include <string>

#include "quire/tensor_view.h"

namespace quire::ops {

struct NotFinite {
  std::string index;  // "[3, 5]"
  double value = 0.0;
};

// The first element, in row-major order, that is not finite. f32, f16 or bf16, on the host.
std::optional<NotFinite> find_not_finite(const TensorView& view);

}  // namespace quire::ops
