// SPDX-License-Identifier: Apache-2.0
#include "reference/arithmetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace quire::reference {
namespace {

TEST(ArithmeticTest, default_is_exact) {
  EXPECT_EQ(Arithmetic{}, Arithmetic::exact);
}

TEST(ArithmeticTest, exact_rounds_nothing) {
  EXPECT_EQ(intermediate(Arithmetic::exact, DType::bf16, 1.0 + 0x1p-30), 1.0 + 0x1p-30);
  EXPECT_EQ(in_register(Arithmetic::exact, 1.0 + 0x1p-30), 1.0 + 0x1p-30);
}

TEST(ArithmeticTest, naive_rounds_tensors_to_their_dtype_and_registers_to_f32) {
  EXPECT_EQ(intermediate(Arithmetic::naive, DType::bf16, 1.0 + 0x1p-9), 1.0);
  EXPECT_EQ(intermediate(Arithmetic::naive, DType::f16, 1.0 + 0x1p-9), 1.0 + 0x1p-9);
  EXPECT_EQ(in_register(Arithmetic::naive, 1.0 + 0x1p-9), 1.0 + 0x1p-9);
  EXPECT_EQ(in_register(Arithmetic::naive, 1.0 + 0x1p-30), 1.0);
}

TEST(ArithmeticTest, naive_sums_lose_small_terms_one_by_one) {
  // Each of the four is lost beside 1 in fp32; together they would not be.
  const std::vector<double> terms{1.0, 0x1p-25, 0x1p-25, 0x1p-25, 0x1p-25};
  const std::vector<double> ones(terms.size(), 1.0);
  EXPECT_EQ(dot(Arithmetic::exact, terms, ones), 1.0 + 0x1p-23);
  EXPECT_EQ(dot(Arithmetic::naive, terms, ones), 1.0);
}

TEST(ArithmeticTest, short_sums_drop_what_lies_13_bits_below) {
  const std::vector<double> ones(3, 1.0);
  EXPECT_EQ(short_dot(std::vector<double>{1.0, 0x1p-13, 0x1p-13}, ones), 1.0 + 0x1p-12);
  EXPECT_EQ(short_dot(std::vector<double>{1.0, 0x1p-14, 0x1p-14}, ones), 1.0);
  EXPECT_EQ(short_dot(std::vector<double>{-1.0, -0x1.8p-13, 0.0}, ones), -1.0 - 0x1p-13);
  // The sum itself loses its low bits beside a larger product.
  EXPECT_EQ(short_dot(std::vector<double>{0x1.8p-13, 1.0, 0.0}, ones), 1.0 + 0x1p-13);
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(short_dot(std::vector<double>{1.0, infinity, 1.0}, ones), infinity);
}

// What an H200 makes of 4096 positive e4m3 products is 7.4 % too small.
TEST(ArithmeticTest, short_sums_of_one_sign_are_as_small_as_those_of_tensor_cores) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  std::vector<double> left(4096);
  std::vector<double> right(4096);
  for (double& value : left) value = round_to(DType::fp8_e4m3, 100.0 * std::abs(normal(random)));
  for (double& value : right) value = round_to(DType::fp8_e4m3, 100.0 * std::abs(normal(random)));
  const double ratio = short_dot(left, right) / dot(Arithmetic::exact, left, right);
  EXPECT_GT(ratio, 0.90);
  EXPECT_LT(ratio, 0.96);
}

TEST(ArithmeticTest, crossed_goes_to_the_far_side_of_a_middle_within_reach) {
  const double middle = 1.0 + 0x1p-4;  // between the e4m3 numbers 1 and 1.125
  for (const double sign : {1.0, -1.0}) {
    const auto round = [sign](Arithmetic arithmetic, double value) {
      return sign * round_within(arithmetic, DType::fp8_e4m3, sign * value, 0x1p-16);
    };
    EXPECT_EQ(round(Arithmetic::naive, middle - 0x1p-17), 1.0);
    EXPECT_EQ(round(Arithmetic::crossed, middle - 0x1p-17), 1.125);
    EXPECT_EQ(round(Arithmetic::crossed, middle + 0x1p-17), 1.0);
    EXPECT_EQ(round(Arithmetic::crossed, middle), 1.125);  // ties go to 1
    EXPECT_EQ(round(Arithmetic::crossed, middle - 0x1p-15), 1.0);
    EXPECT_EQ(round(Arithmetic::crossed, middle + 0x1p-15), 1.125);
  }
}

TEST(ArithmeticTest, nothing_is_crossed_to_f32) {
  EXPECT_EQ(round_within(Arithmetic::crossed, DType::f32, 1.0, 0x1p-16), 1.0);
}

TEST(ArithmeticTest, random_rounds_to_either_neighbour_in_f32_and_keeps_what_is_one) {
  const double between = 1.0 + 0x1p-25;
  int below = 0;
  for (std::uint8_t seed = 0; seed < 64; ++seed) {
    const Arithmetic random = Arithmetic::random(seed);
    const double rounded = in_register(random, between);
    EXPECT_TRUE(rounded == 1.0 || rounded == 1.0 + 0x1p-23) << rounded;
    EXPECT_EQ(rounded, in_register(random, between)) << "the same of a seed";
    EXPECT_EQ(intermediate(random, DType::f32, between), rounded);
    const double narrow = intermediate(random, DType::bf16, 1.0 + 0x1p-9);
    const bool is_neighbour = narrow == 1.0 || narrow == 1.0 + 0x1p-7;
    EXPECT_TRUE(seed % 2 == 0 ? is_neighbour : narrow == 1.0 + 0x1p-9) << narrow;
    const double subnormal = round_randomly(DType::f16, -0x1.8p-24, seed);
    EXPECT_TRUE(subnormal == -0x1p-24 || subnormal == -0x1p-23) << subnormal;
    EXPECT_EQ(in_register(random, -1.5), -1.5);
    EXPECT_TRUE(std::isnan(in_register(random, std::nan(""))));
    below += rounded == 1.0 ? 1 : 0;
  }
  EXPECT_GT(below, 16);
  EXPECT_LT(below, 48);
}

TEST(ArithmeticTest, random_rounding_is_off_twice_as_far_as_rounding_to_nearest) {
  std::mt19937 generator(5);
  std::uniform_real_distribution<double> uniform(1.0, 2.0);
  double nearest = 0.0;
  double random = 0.0;
  for (int i = 0; i < 20'000; ++i) {
    const double value = uniform(generator);
    nearest += std::pow(in_register(Arithmetic::naive, value) - value, 2);
    random += std::pow(in_register(Arithmetic::random(3), value) - value, 2);
  }
  EXPECT_NEAR(std::sqrt(random / nearest), 2.0, 0.05);
}

TEST(ArithmeticTest, dot_takes_the_length_of_its_left_side) {
  const std::vector<double> left{1.0, 2.0};
  const std::vector<double> right{3.0, 4.0, 100.0};
  EXPECT_EQ(dot(Arithmetic::exact, left, right), 11.0);
}

}  // namespace
}  // namespace quire::reference
