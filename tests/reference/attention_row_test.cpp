// SPDX-License-Identifier: Apache-2.0
#include "reference/attention_row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "quire/element.h"
#include "support/host_tensor.h"

namespace quire::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
using Values = std::vector<std::vector<double>>;

AttentionRow exact(const std::vector<double>& scores, const Values& values,
                   Arithmetic arithmetic = Arithmetic::exact) {
  const std::vector<std::span<const double>> spans(values.begin(), values.end());
  return attend(scores, spans, 2, arithmetic, DType::bf16);
}

TEST(AttendTest, one_key_returns_its_value) {
  const AttentionRow row = exact({-3.5}, {{7.0, -2.0}});
  EXPECT_EQ(row.out, (std::vector{7.0, -2.0}));
  EXPECT_EQ(row.lse, -3.5);
}

TEST(AttendTest, equal_scores_average) {
  const AttentionRow row = exact({2.0, 2.0, 2.0, 2.0}, {{1, 0}, {2, 0}, {3, 0}, {6, 4}});
  EXPECT_EQ(row.out, (std::vector{3.0, 1.0}));
  EXPECT_DOUBLE_EQ(row.lse, 2.0 + std::log(4.0));
}

TEST(AttendFp8Test, rounds_weights_but_not_their_sum) {
  const Values values{{1.0, 0.0}, {0.0, 1.0}};
  const std::vector<std::span<const double>> spans(values.begin(), values.end());
  // 256 · 0.53 = 135.68 lies between 128 and 144.
  const double scores[] = {0.0, std::log(0.53)};
  const AttentionRow row = attend_fp8(scores, spans, 2, DType::f32);
  EXPECT_NEAR(row.out[0], 256.0 / (256.0 + 135.68), 1e-6);
  EXPECT_NEAR(row.out[1], 128.0 / (256.0 + 135.68), 1e-6);
  EXPECT_NEAR(row.lse, std::log(1.53), 1e-6);
}

TEST(AttendFp8Test, no_key_gives_zeros) {
  const AttentionRow row = attend_fp8({}, {}, 2, DType::f32);
  EXPECT_EQ(row.out, (std::vector{0.0, 0.0}));
  EXPECT_EQ(row.lse, -kInfinity);
}

TEST(AttendFp8Test, a_row_of_q_keeps_four_bits_below_its_largest) {
  // Times 64 the largest is 192; 2.125 · 64 = 136 is a tie between 128 and 144, to even.
  EXPECT_EQ(round_to_fp8({3.0, -2.125, 0.0}), (std::vector{3.0, -2.0, 0.0}));
  EXPECT_EQ(round_to_fp8({0.0, 0.0}), (std::vector{0.0, 0.0}));
}

TEST(AttendTest, weighs_by_the_exponential) {
  const AttentionRow row = exact({0.0, std::log(3.0)}, {{0, 4}, {1, 0}});
  EXPECT_DOUBLE_EQ(row.out[0], 0.75);
  EXPECT_DOUBLE_EQ(row.out[1], 1.0);
  EXPECT_DOUBLE_EQ(row.lse, std::log(4.0));
}

TEST(AttendTest, no_keys_give_zeros_and_minus_infinity) {
  const AttentionRow row = exact({}, {});
  EXPECT_EQ(row.out, (std::vector{0.0, 0.0}));
  EXPECT_EQ(row.lse, -kInfinity);
}

TEST(AttendTest, scores_of_minus_infinity_weigh_nothing) {
  EXPECT_EQ(exact({-kInfinity}, {{1, 1}}).out, (std::vector{0.0, 0.0}));
  EXPECT_EQ(exact({-kInfinity, 1.0}, {{1, 1}, {2, 3}}).out, (std::vector{2.0, 3.0}));
}

TEST(AttendTest, huge_scores_do_not_overflow) {
  const AttentionRow row = exact({1e5, 1e5}, {{1, 0}, {3, 0}});
  EXPECT_EQ(row.out[0], 2.0);
  EXPECT_DOUBLE_EQ(row.lse, 1e5 + std::log(2.0));
}

TEST(AttendTest, a_nan_score_poisons_the_row_wherever_it_stands) {
  for (const std::vector<double>& scores : {std::vector{kNan, 1.0}, {1.0, kNan}, {kNan, kNan}}) {
    const AttentionRow row = exact(scores, {{1, 1}, {1, 1}});
    EXPECT_TRUE(std::isnan(row.out[0]));
    EXPECT_TRUE(std::isnan(row.lse));
  }
}

TEST(AttendTest, naive_rounds_weights_and_output_to_the_dtype) {
  const std::vector<double> scores{0.0, 0.1, 0.7};
  const Values values{{1.0, 0.3}, {2.0, 0.6}, {-1.0, 0.9}};
  const AttentionRow naive = exact(scores, values, Arithmetic::naive);
  const AttentionRow fine = exact(scores, values);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(naive.out[i], round_to(DType::bf16, naive.out[i]));
    EXPECT_NE(naive.out[i], fine.out[i]);
    EXPECT_NEAR(naive.out[i], fine.out[i], 0x1p-6);
  }
}

class MergeTest : public testing::TestWithParam<int> {
 protected:
  MergeTest() {
    auto seed = static_cast<std::uint64_t>(GetParam());
    for (int key = 0; key < 7; ++key) {
      scores_.push_back(20.0 * test::next_uniform(seed));
      values_.push_back({test::next_uniform(seed), test::next_uniform(seed)});
    }
  }
  AttentionRow part(std::size_t first, std::size_t last) const {
    const auto begin = static_cast<std::ptrdiff_t>(first);
    const auto end = static_cast<std::ptrdiff_t>(last);
    return exact({scores_.begin() + begin, scores_.begin() + end},
                 {values_.begin() + begin, values_.begin() + end});
  }
  static void expect_same(const AttentionRow& left, const AttentionRow& right) {
    EXPECT_NEAR(left.lse, right.lse, 1e-12);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(left.out[i], right.out[i], 1e-12);
  }
  std::vector<double> scores_;
  Values values_;
};

TEST_P(MergeTest, any_cut_gives_the_whole) {
  for (std::size_t cut = 0; cut <= scores_.size(); ++cut) {
    expect_same(merge(part(0, cut), part(cut, 7)), part(0, 7));
  }
}

TEST_P(MergeTest, commutes_and_associates) {
  const AttentionRow a = part(0, 2);
  const AttentionRow b = part(2, 5);
  const AttentionRow c = part(5, 7);
  expect_same(merge(a, b), merge(b, a));
  expect_same(merge(merge(a, b), c), merge(a, merge(b, c)));
}

TEST_P(MergeTest, is_of_fp32_where_the_evaluation_is) {
  const AttentionRow wanted = merge(part(0, 3), part(3, 7));
  for (const Arithmetic arithmetic : {Arithmetic::naive, Arithmetic::random(1)}) {
    const AttentionRow row = merge(part(0, 3), part(3, 7), arithmetic);
    EXPECT_EQ(row.lse, static_cast<float>(row.lse));
    EXPECT_NEAR(row.lse, wanted.lse, 0x1p-20);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(row.out[i], static_cast<float>(row.out[i]));
      EXPECT_NEAR(row.out[i], wanted.out[i], 0x1p-20);
    }
    EXPECT_NE(row.out, wanted.out);
  }
}

TEST_P(MergeTest, a_sink_is_a_key_of_value_zero) {
  std::vector<double> scores = scores_;
  Values values = values_;
  scores.push_back(1.5);
  values.push_back({0.0, 0.0});
  expect_same(add_sink(part(0, 7), 1.5), exact(scores, values));
}

INSTANTIATE_TEST_SUITE_P(Seeds, MergeTest, testing::Values(1, 2, 3, 4));

TEST(MergeEmptyTest, an_empty_row_contributes_nothing_whatever_it_holds) {
  const AttentionRow row = exact({1.0, 2.0}, {{1, 2}, {3, 4}});
  const AttentionRow garbage{.out = {kNan, kNan}, .lse = -kInfinity};
  EXPECT_EQ(merge(row, garbage).out, row.out);
  EXPECT_EQ(merge(garbage, row).out, row.out);
  EXPECT_EQ(merge(garbage, garbage).out, (std::vector{0.0, 0.0}));
  EXPECT_EQ(merge(garbage, garbage).lse, -kInfinity);
}

TEST(SinkTest, alone_gives_zeros_and_its_own_lse) {
  const AttentionRow row = add_sink(exact({}, {}), 0.25);
  EXPECT_EQ(row.out, (std::vector{0.0, 0.0}));
  EXPECT_EQ(row.lse, 0.25);
}

TEST(SinkTest, of_minus_infinity_changes_nothing) {
  const AttentionRow row = exact({1.0, 2.0}, {{1, 2}, {3, 4}});
  EXPECT_EQ(add_sink(row, -kInfinity).out, row.out);
  EXPECT_EQ(add_sink(row, -kInfinity).lse, row.lse);
}

double modified(const ScoreModifier& modifier, double raw) {
  return modify_score(modifier, raw, 10, 7, Arithmetic::exact, DType::f32);
}

TEST(ModifyScoreTest, scales_caps_and_slopes_in_this_order) {
  EXPECT_EQ(modified({.scale = 0.5}, 6.0), 3.0);
  EXPECT_DOUBLE_EQ(modified({.scale = 0.5, .softcap = 2.0}, 6.0), 2.0 * std::tanh(1.5));
  EXPECT_EQ(modified({.scale = 0.5, .alibi_slope = 0.25}, 6.0), 3.0 - 0.75);
  EXPECT_DOUBLE_EQ(modified({.scale = 0.5, .softcap = 2.0, .alibi_slope = 0.25}, 6.0),
                   2.0 * std::tanh(1.5) - 0.75);
}

TEST(ModifyScoreTest, softcap_bounds_the_score) {
  EXPECT_LE(modified({.softcap = 30.0}, 1e9), 30.0);
  EXPECT_GE(modified({.softcap = 30.0}, -1e9), -30.0);
}

TEST(ModifyScoreTest, naive_rounds_every_step) {
  const double raw = 1.0 + 0x1p-12;
  EXPECT_EQ(modify_score({.scale = 1.0}, raw, 0, 0, Arithmetic::naive, DType::bf16), 1.0);
  EXPECT_EQ(modify_score({.scale = 1.0}, raw, 0, 0, Arithmetic::exact, DType::bf16), raw);
}

}  // namespace
}  // namespace quire::reference
