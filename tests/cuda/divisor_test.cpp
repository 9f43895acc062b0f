// SPDX-License-Identifier: Apache-2.0
// Needs no GPU: the kernels' division runs on the host as well.
#include "cuda/rows/divisor.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace quire::cuda {
namespace {

constexpr std::uint32_t kLargest = 0x7fffffffu;

TEST(Divisor, EqualsDivisionAroundEveryMultiple) {
  for (const std::uint32_t value :
       {1u, 2u, 3u, 5u, 7u, 8u, 40u, 72u, 127u, 128u, 576u, 641u, 65521u, 1u << 30, kLargest}) {
    const Divisor divisor(value);
    for (std::uint64_t multiple = 0; multiple <= kLargest;
         multiple += value * (1 + kLargest / value / 1000)) {
      for (const std::int64_t near : {-1, 0, 1}) {
        const std::int64_t dividend = static_cast<std::int64_t>(multiple) + near;
        if (dividend < 0 || dividend > kLargest) continue;
        ASSERT_EQ(divisor.quotient(static_cast<std::uint32_t>(dividend)), dividend / value)
            << dividend << " / " << value;
      }
    }
    EXPECT_EQ(divisor.quotient(kLargest), kLargest / value);
  }
}

TEST(Divisor, LargeDividendsAreDividedAsTheyAre) {
  const Divisor divisor(3);
  EXPECT_EQ(divisor.quotient_of(std::int64_t{1} << 40), (std::int64_t{1} << 40) / 3);
  EXPECT_EQ(divisor.quotient_of(7), 2);
}

}  // namespace
}  // namespace quire::cuda
