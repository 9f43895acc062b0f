// SPDX-License-Identifier: Apache-2.0
// The tolerance rule of the docs: twice the error of a naive evaluation in the same types, plus one
// ulp of the largest value; NaN and infinities in the same places.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "quire/dtype.h"

namespace quire::cpu {

inline double ulp_of(DType dtype, double value) {
  const int mantissa = dtype == DType::f32        ? 23
                       : dtype == DType::f16      ? 10
                       : dtype == DType::bf16     ? 7
                       : dtype == DType::fp8_e4m3 ? 3
                                                  : 2;
  return value == 0.0 ? 0.0 : std::ldexp(1.0, std::ilogb(value) - mantissa);
}

inline bool is_same_kind(double left, double right) {
  if (std::isnan(left) || std::isnan(right)) return std::isnan(left) && std::isnan(right);
  if (std::isinf(left) || std::isinf(right)) return left == right;
  return true;
}

inline void expect_within_rule(DType dtype, std::span<const double> actual,
                               std::span<const double> exact, std::span<const double> naive) {
  ASSERT_EQ(actual.size(), exact.size());
  double largest = 0.0;
  double naive_error = 0.0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    if (!std::isfinite(exact[i])) continue;
    largest = std::max(largest, std::abs(exact[i]));
    if (std::isfinite(naive[i])) {
      naive_error = std::max(naive_error, std::abs(naive[i] - exact[i]));
    }
  }
  const double bound = 2.0 * naive_error + ulp_of(dtype, largest);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    ASSERT_TRUE(is_same_kind(actual[i], exact[i])) << i << ": " << actual[i] << " not " << exact[i];
    if (!std::isfinite(exact[i])) continue;
    ASSERT_LE(std::abs(actual[i] - exact[i]), bound)
        << i << ": " << actual[i] << " not " << exact[i];
  }
}

}  // namespace quire::cpu
