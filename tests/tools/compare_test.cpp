// SPDX-License-Identifier: Apache-2.0
#include "tools/check/compare.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "quire/element.h"

namespace quire::tools {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Ulp, IsTheDistanceOfNeighbours) {
  EXPECT_EQ(ulp_of(DType::bf16, 1.0), std::ldexp(1.0, -7));
  EXPECT_EQ(ulp_of(DType::bf16, -3.0), std::ldexp(1.0, -6));
  EXPECT_EQ(ulp_of(DType::f16, 1.0), std::ldexp(1.0, -10));
  EXPECT_EQ(ulp_of(DType::f32, 1.0), std::ldexp(1.0, -23));
  EXPECT_EQ(ulp_of(DType::fp8_e4m3, 448.0), 32.0);
  EXPECT_EQ(ulp_of(DType::fp8_e4m3, 0.0), std::ldexp(1.0, -9));  // the smallest subnormal
  EXPECT_EQ(ulp_of(DType::i8, 100.0), 1.0);
}

TEST(CompareValues, AllowsTwiceTheNaiveErrorAndOneUlp) {
  const std::array exact{1.0, 2.0};
  const std::array naive{1.0, 2.01};
  const std::array close{1.029, 2.0};
  const std::array far{1.031, 2.0};
  EXPECT_EQ(compare_values("x", close, exact, {.naive = naive}, 0.01).fault, "");
  EXPECT_NE(compare_values("x", far, exact, {.naive = naive}, 0.01).fault, "");
  EXPECT_NEAR(compare_values("x", far, exact, {.naive = naive}, 0.01).max_error, 0.031, 1e-12);
}

TEST(CompareValues, ARowMayBeTwiceAsFarOffAsACrossingMovesIt) {
  const std::vector<double> exact{1.0, 2.0, 3.0, 4.0};
  const std::vector<double> crossed{1.5, 2.0, 3.0, 4.0};  // the first of two rows
  const Rough rough{.naive = exact, .crossed = crossed, .row = 2};
  EXPECT_EQ(compare_values("x", std::array{1.0, 2.9, 3.0, 4.0}, exact, rough, 0.01).fault, "");
  EXPECT_NE(compare_values("x", std::array{1.0, 3.1, 3.0, 4.0}, exact, rough, 0.01).fault, "");
  EXPECT_NE(compare_values("x", std::array{1.0, 2.0, 3.0, 4.1}, exact, rough, 0.01).fault, "");
}

TEST(CompareValues, MayBeAsFarOffAsRandomRoundingAndOneUlp) {
  const std::vector<double> exact{1.0, 2.0};
  const Rough rough{.naive = exact, .random_error = 0.5};
  const std::vector<double> near{1.0, 2.75};
  const std::vector<double> far{1.0, 2.8};
  EXPECT_EQ(compare_values("out", near, exact, rough, 0.25).fault, "");
  EXPECT_NE(compare_values("out", far, exact, rough, 0.25).fault, "");
}

TEST(CompareValues, WithoutNaiveAllowsTwoUlps) {
  const std::array exact{1.0};
  EXPECT_EQ(compare_values("x", std::array{1.019}, exact, {}, 0.01).fault, "");
  EXPECT_NE(compare_values("x", std::array{1.021}, exact, {}, 0.01).fault, "");
}

TEST(CompareValues, NanAndInfinitiesMustAgreeInPlaceAndSign) {
  const std::array exact{kNan, kInf, -kInf, 1.0};
  EXPECT_EQ(compare_values("x", exact, exact, {.naive = exact}, 0.0).fault, "");
  for (std::size_t i = 0; i < exact.size(); ++i) {
    for (const double other : {kNan, kInf, -kInf, 1.0}) {
      std::array actual = exact;
      actual[i] = other;
      const bool same = std::isnan(other) ? std::isnan(exact[i]) : other == exact[i];
      EXPECT_EQ(compare_values("x", actual, exact, {.naive = exact}, 1e9).fault.empty(), same)
          << i << " " << other;
    }
  }
}

TEST(CompareBits, TellsMinusZeroFromZero) {
  std::array<float, 2> left{0.0f, 1.0f};
  std::array<float, 2> right{-0.0f, 1.0f};
  const TensorView a = TensorView::contiguous(left.data(), DType::f32, {2});
  const TensorView b = TensorView::contiguous(right.data(), DType::f32, {2});
  EXPECT_EQ(compare_bits("x", a, a).fault, "");
  EXPECT_NE(compare_bits("x", a, b).fault.find("1 of 2 elements differ, first [0]"),
            std::string::npos);
}

TEST(CompareTolerance, IntegersMustBeEqual) {
  std::array<std::int32_t, 2> left{3, 4};
  std::array<std::int32_t, 2> right{3, 5};
  const TensorView a = TensorView::contiguous(left.data(), DType::i32, {2});
  const TensorView b = TensorView::contiguous(right.data(), DType::i32, {2});
  EXPECT_EQ(compare_tolerance("x", a, a, {.naive = a}).fault, "");
  EXPECT_NE(compare_tolerance("x", a, b, {.naive = b}).fault, "");
}

// [value, value] in f16.
std::vector<std::uint16_t> halves(double first, double second) {
  std::vector<std::uint16_t> codes(2);
  store_element(codes.data(), DType::f16, 0, first);
  store_element(codes.data(), DType::f16, 1, second);
  return codes;
}

TEST(CompareTolerance, AnOverflowOfF16IsOpenOnlyWhereTheNaiveEvaluationHasAnother) {
  const auto judge = [](std::vector<std::uint16_t> actual, std::vector<std::uint16_t> naive) {
    std::vector<std::uint16_t> exact = halves(-kInf, kInf);
    const auto view = [](std::vector<std::uint16_t>& codes) {
      return TensorView::contiguous(codes.data(), DType::f16, {2});
    };
    return compare_tolerance("x", view(actual), view(exact), {.naive = view(naive)}).fault;
  };
  EXPECT_EQ(judge(halves(kInf, kInf), halves(-kInf, -kInf)), "");
  EXPECT_EQ(judge(halves(-65504.0, kInf), halves(65504.0, kInf)), "");
  EXPECT_NE(judge(halves(kInf, kInf), halves(-kInf, kInf)), "");
  EXPECT_NE(judge(halves(65504.0, kInf), halves(-kInf, kInf)), "");
  EXPECT_NE(judge(halves(kNan, kInf), halves(-kInf, -kInf)), "");
  EXPECT_NE(judge(halves(65504.0, kInf), halves(-65504.0, kInf)), "")
      << "far beyond twice the naive error";
}

TEST(CompareTolerance, AnOverflowOfF16IsOpenWhereRandomRoundingHasAnother) {
  std::vector<std::uint16_t> exact = halves(kInf, kInf);
  std::vector<std::uint16_t> naive = halves(kInf, kInf);
  const auto view = [](std::vector<std::uint16_t>& codes) {
    return TensorView::contiguous(codes.data(), DType::f16, {2});
  };
  RandomSpread spread;
  std::vector<std::uint16_t> same = halves(kInf, kInf);
  widen(spread, view(same), view(exact));
  std::vector<std::uint16_t> other = halves(kInf, 65472.0);
  widen(spread, view(other), view(exact));
  spread.error = 100.0;
  const auto judge = [&](std::vector<std::uint16_t> actual) {
    return compare_tolerance("x", view(actual), view(exact),
                             {.naive = view(naive), .random = spread})
        .fault;
  };
  EXPECT_EQ(judge(halves(kInf, 65472.0)), "");
  EXPECT_NE(judge(halves(kInf, 65024.0)), "") << "far beyond the random error";
  EXPECT_NE(judge(halves(65472.0, kInf)), "") << "no evaluation has a number here";
  EXPECT_NE(judge(halves(kInf, -kInf)), "");
  EXPECT_NE(judge(halves(kInf, kNan)), "");
}

TEST(CompareTolerance, AnInfinitysSignIsOpenOnlyWhereRandomRoundingHasTheOther) {
  std::vector<float> exact{-INFINITY, INFINITY};
  std::vector<float> other{INFINITY, INFINITY};
  const auto view = [](std::vector<float>& values) {
    return TensorView::contiguous(values.data(), DType::f32, {2});
  };
  RandomSpread spread;
  widen(spread, view(exact), view(exact));
  const auto judge = [&](std::vector<float> actual) {
    return compare_tolerance("x", view(actual), view(exact),
                             {.naive = view(exact), .random = spread})
        .fault;
  };
  EXPECT_NE(judge({INFINITY, INFINITY}), "");
  widen(spread, view(other), view(exact));
  EXPECT_EQ(judge({INFINITY, INFINITY}), "");
  EXPECT_EQ(judge({-INFINITY, INFINITY}), "");
  EXPECT_NE(judge({-INFINITY, -INFINITY}), "") << "no evaluation has it here";
  EXPECT_NE(judge({0.0F, INFINITY}), "");
  EXPECT_NE(judge({NAN, INFINITY}), "");
}

// 0 · ∞: a sum that cancels in the kernel's precision is 0 in some evaluation of that precision too.
TEST(CompareTolerance, AnInfinityMayBeNanOnlyWhereRandomRoundingHasNan) {
  std::vector<float> exact{-INFINITY, INFINITY, 1.0F};
  std::vector<float> other{NAN, INFINITY, NAN};
  const auto view = [](std::vector<float>& values) {
    return TensorView::contiguous(values.data(), DType::f32, {3});
  };
  RandomSpread spread;
  const auto judge = [&](std::vector<float> actual) {
    return compare_tolerance("x", view(actual), view(exact),
                             {.naive = view(exact), .random = spread})
        .fault;
  };
  widen(spread, view(exact), view(exact));
  EXPECT_NE(judge({NAN, INFINITY, 1.0F}), "");
  widen(spread, view(other), view(exact));
  EXPECT_EQ(judge({NAN, INFINITY, 1.0F}), "");
  EXPECT_NE(judge({INFINITY, INFINITY, 1.0F}), "") << "no evaluation has the other sign";
  EXPECT_NE(judge({-INFINITY, NAN, 1.0F}), "") << "no evaluation has NaN here";
  EXPECT_NE(judge({-INFINITY, INFINITY, NAN}), "") << "the exact number is none that 0 multiplies";
}

}  // namespace
}  // namespace quire::tools
