// SPDX-License-Identifier: Apache-2.0
#include "reference/arithmetic.h"

#include <cmath>
#include <cstddef>

namespace quire::reference {

double round_within(Arithmetic arithmetic, DType dtype, double value, double reach) {
  const double nearest = round_to(dtype, value);
  if (arithmetic != Arithmetic::crossed || dtype == DType::f32) return nearest;
  const double below = round_to(dtype, value - reach);
  const double above = round_to(dtype, value + reach);
  return std::abs(below - nearest) > std::abs(above - nearest) ? below : above;
}

double dot(Arithmetic arithmetic, std::span<const double> left, std::span<const double> right) {
  double sum = 0.0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    sum = in_register(arithmetic, sum + left[i] * right[i]);
  }
  return sum;
}

double short_dot(std::span<const double> left, std::span<const double> right) {
  constexpr int kBits = 13;
  double sum = 0.0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const double product = left[i] * right[i];
    const double larger = std::fmax(std::abs(sum), std::abs(product));
    if (larger == 0.0 || !std::isfinite(sum + product)) {
      sum += product;
      continue;
    }
    const double unit = std::ldexp(1.0, std::ilogb(larger) - kBits);
    sum = (std::trunc(sum / unit) + std::trunc(product / unit)) * unit;
  }
  return sum;
}

double largest_magnitude(std::span<const double> values) {
  double largest = 0.0;
  for (const double value : values) largest = std::fmax(largest, std::abs(value));
  return largest;
}

}  // namespace quire::reference
