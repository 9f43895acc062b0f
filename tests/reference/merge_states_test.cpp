// SPDX-License-Identifier: Apache-2.0
#include "reference/merge_states.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/host_tensor.h"

namespace quire::reference {
namespace {

using test::HostTensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct MergeCase {
  std::string name;
  std::vector<double> states;  // one value per state
  std::vector<double> lses;
  double out;
  double lse;
};

class MergeStates : public testing::TestWithParam<MergeCase> {};

TEST_P(MergeStates, WeighsByTheExponentials) {
  const MergeCase& c = GetParam();
  const auto count = static_cast<std::int64_t>(c.lses.size());
  const HostTensor states = HostTensor::of(DType::f32, {count, 1, 1, 1}, c.states);
  const HostTensor lses = HostTensor::of(DType::f32, {count, 1, 1}, c.lses);
  const HostTensor out(DType::f32, {1, 1, 1});
  const HostTensor lse(DType::f32, {1, 1});
  reference::merge_states(
      {.states = states.view(), .lses = lses.view(), .out = out.view(), .lse = lse.view()});
  EXPECT_FLOAT_EQ(static_cast<float>(out.at({0, 0, 0})), static_cast<float>(c.out));
  EXPECT_FLOAT_EQ(static_cast<float>(lse.at({0, 0})), static_cast<float>(c.lse));
}

INSTANTIATE_TEST_SUITE_P(
    Lists, MergeStates,
    testing::Values(MergeCase{"one", {3}, {-2}, 3, -2},
                    MergeCase{"equal", {1, 5}, {7, 7}, 3, 7 + std::log(2.0)},
                    MergeCase{"one_to_three", {4, 8}, {0, std::log(3.0)}, 7, std::log(4.0)},
                    MergeCase{"far_apart", {1, 9}, {-1000, 1000}, 9, 1000},
                    MergeCase{"very_negative", {1, 3}, {-2000, -2000}, 2, -2000 + std::log(2.0)},
                    MergeCase{"empty_state", {6, 100}, {1, -kInfinity}, 6, 1},
                    MergeCase{"empty_state_with_nan", {kNaN, 6}, {-kInfinity, 1}, 6, 1},
                    MergeCase{"empty_state_with_infinity", {6, kInfinity}, {1, -kInfinity}, 6, 1},
                    MergeCase{"all_empty", {kNaN, 5}, {-kInfinity, -kInfinity}, 0, -kInfinity},
                    MergeCase{"no_states", {}, {}, 0, -kInfinity},
                    // Where an LSE has no room for log 2 beside it.
                    MergeCase{"equal_at_the_top", {1, 5}, {3e38, 3e38}, 3, 3e38},
                    MergeCase{"equal_at_the_bottom", {1, 5}, {-3e38, -3e38}, 3, -3e38},
                    MergeCase{"equal_at_1e17", {1, 5, 9}, {1e17, 1e17, 1e17}, 5, 1e17},
                    MergeCase{"ends_of_the_range", {1, 5}, {-3e38, 3e38}, 5, 3e38},
                    MergeCase{"three", {1, 2, 4}, {0, 0, std::log(2.0)}, 2.75, std::log(4.0)}),
    [](const auto& test) { return test.param.name; });

TEST(MergeStatesProperty, SplitsOfARowGiveTheWholeRow) {
  // Scores of 6 keys with values; softmax over all equals the merge of the splits 0‥2 and 2‥6.
  const std::vector<double> scores{0.5, -1.0, 2.0, 0.0, 1.5, -3.0};
  const std::vector<double> values{1, 2, 3, 4, 5, 6};
  const auto part = [&](std::size_t first, std::size_t last) {
    double sum = 0.0;
    double weighted = 0.0;
    for (std::size_t i = first; i < last; ++i) {
      sum += std::exp(scores[i]);
      weighted += std::exp(scores[i]) * values[i];
    }
    return std::vector<double>{weighted / sum, std::log(sum)};
  };
  const std::vector<double> left = part(0, 2);
  const std::vector<double> right = part(2, 6);
  const std::vector<double> whole = part(0, 6);
  const HostTensor states = HostTensor::of(DType::f32, {2, 1, 1, 1}, {left[0], right[0]});
  const HostTensor lses = HostTensor::of(DType::f32, {2, 1, 1}, {left[1], right[1]});
  const HostTensor out(DType::f32, {1, 1, 1});
  reference::merge_states({.states = states.view(), .lses = lses.view(), .out = out.view()});
  EXPECT_NEAR(out.at({0, 0, 0}), whole[0], 1e-6);
}

TEST(MergeStatesProperty, EveryTokenHeadAndColumnHasItsOwnPlace) {
  const HostTensor states = HostTensor::random(DType::bf16, {2, 3, 2, 4}, 1);
  const HostTensor lses = HostTensor::random(DType::f32, {2, 3, 2}, 2);
  const HostTensor out(DType::f32, {3, 2, 4});
  const HostTensor lse(DType::f32, {3, 2});
  reference::merge_states(
      {.states = states.view(), .lses = lses.view(), .out = out.view(), .lse = lse.view()});
  for (std::int64_t t = 0; t < 3; ++t) {
    for (std::int64_t h = 0; h < 2; ++h) {
      const double a = std::exp(lses.at({0, t, h}));
      const double b = std::exp(lses.at({1, t, h}));
      EXPECT_NEAR(lse.at({t, h}), std::log(a + b), 1e-6);
      for (std::int64_t d = 0; d < 4; ++d) {
        const double expected =
            (a * states.at({0, t, h, d}) + b * states.at({1, t, h, d})) / (a + b);
        EXPECT_NEAR(out.at({t, h, d}), expected, 1e-6);
      }
    }
  }
}

}  // namespace
}  // namespace quire::reference
