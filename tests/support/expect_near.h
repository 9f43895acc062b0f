// SPDX-License-Identifier: Apache-2.0
// Element by element comparison that stops at the first difference and says where it is.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace quire::test {

inline void expect_near(const std::vector<double>& actual, const std::vector<double>& expected,
                        double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance) << "element " << i;
  }
}

inline double largest_magnitude(const std::vector<double>& values) {
  double result = 0.0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

}  // namespace quire::test
