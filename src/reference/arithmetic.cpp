// SPDX-License-Identifier: Apache-2.0
#include "reference/arithmetic.h"

#include <cstddef>

namespace quire::reference {

double dot(Arithmetic arithmetic, std::span<const double> left, std::span<const double> right) {
  double sum = 0.0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    sum = in_register(arithmetic, sum + left[i] * right[i]);
  }
  return sum;
}

}  // namespace quire::reference
