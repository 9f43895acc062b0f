// SPDX-License-Identifier: Apache-2.0
#include "reference/fp8_blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "quire/element.h"
#include "support/host_tensor.h"

namespace quire::reference {
namespace {

using test::HostTensor;

std::vector<double> quantized(std::vector<double> row, Arithmetic arithmetic = Arithmetic::exact) {
  quantize_blocks(row, DType::fp8_e4m3, arithmetic);
  return row;
}

TEST(QuantizeBlocksTest, keeps_what_the_scale_can_hold) {
  // amax 448 makes the scale 1: these are e4m3 numbers.
  const std::vector<double> row{448.0, -3.5, 0.0, 0.015625};
  EXPECT_EQ(quantized(row), row);
}

TEST(QuantizeBlocksTest, rounds_to_the_scaled_grid) {
  // The scale is 1/100: in its units 1 lies between 96 and 104.
  const double scale = round_to(DType::f32, 4.48 / 448.0);
  const std::vector<double> row = quantized({4.48, 1.0});
  EXPECT_EQ(row[1], round_to(DType::fp8_e4m3, 1.0 / scale) * scale);
  EXPECT_NE(row[1], 1.0);
  EXPECT_NEAR(row[1], 1.0, 0x1p-4);
}

TEST(QuantizeBlocksTest, every_128_columns_have_their_own_scale) {
  std::vector<double> row(300, 1.0);
  row[0] = 400.0;   // group 0: step of 1 is coarse
  row[299] = 5e-4;  // group 2 is not touched by group 0
  const std::vector<double> result = quantized(row);
  EXPECT_EQ(result[0], quantized({400.0})[0]);
  EXPECT_EQ(result[128], quantized({1.0})[0]);
  EXPECT_NEAR(result[299], 5e-4, 5e-4 * 0x1p-4);
  EXPECT_EQ(quantized({400.0, 5e-4})[1], 0.0);
}

TEST(QuantizeBlocksTest, scale_is_bounded_and_values_beyond_saturate) {
  const std::vector<double> row = quantized({5000.0, -2000.0, 1.0});
  const double scale = round_to(DType::f32, 1200.0 / 448.0);
  EXPECT_EQ(row[0], 448.0 * scale);
  EXPECT_EQ(row[1], -448.0 * scale);
}

TEST(QuantizeBlocksTest, a_zero_group_stays_zero) {
  EXPECT_EQ(quantized({0.0, 0.0, -0.0}), (std::vector{0.0, 0.0, 0.0}));
}

TEST(QuantizeBlocksTest, a_scale_without_reciprocal_gives_zeros) {
  EXPECT_EQ(quantized({1e-38, -1e-38}), (std::vector{0.0, 0.0}));
}

TEST(QuantizeBlocksTest, nan_stays_nan_and_alone) {
  const std::vector<double> row = quantized({std::nan(""), 448.0, 7.0});
  EXPECT_TRUE(std::isnan(row[0]));
  EXPECT_EQ(row[1], 448.0);
  EXPECT_EQ(row[2], 7.0);
  EXPECT_TRUE(std::isnan(quantized({std::nan(""), 0.0})[0]));
}

class QuantizeBlocksErrorTest : public testing::TestWithParam<Arithmetic> {};

TEST_P(QuantizeBlocksErrorTest, is_within_half_a_step) {
  std::uint64_t seed = 5;
  std::vector<double> row(512);
  for (double& x : row) x = 3.0 * test::next_uniform(seed);
  const std::vector<double> result = quantized(row, GetParam());
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double subnormal_step = 3.0 / 448.0 * 0x1p-9;
    EXPECT_LE(std::abs(result[i] - row[i]), std::abs(row[i]) * 0x1.001p-4 + subnormal_step);
  }
}

INSTANTIATE_TEST_SUITE_P(Both, QuantizeBlocksErrorTest,
                         testing::Values(Arithmetic::exact, Arithmetic::naive));

TEST(LoadWeightRowTest, multiplies_by_the_scale_of_its_block) {
  const HostTensor weight = HostTensor::filled(DType::fp8_e4m3, {130, 200}, 2.0);
  const HostTensor scale = HostTensor::of(DType::f32, {2, 2}, {1, 2, 3, 4});
  const std::vector<double> low = load_weight_row(weight.view(), scale.view(), 127);
  const std::vector<double> high = load_weight_row(weight.view(), scale.view(), 128);
  EXPECT_EQ(low[127], 2.0);
  EXPECT_EQ(low[128], 4.0);
  EXPECT_EQ(high[0], 6.0);
  EXPECT_EQ(high[199], 8.0);
}

TEST(LoadWeightRowTest, takes_the_matrix_it_is_told) {
  const HostTensor weight = HostTensor::of(DType::bf16, {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(load_weight_row(weight.view(), {}, 1, 0), (std::vector{5.0, 6.0}));
  const HostTensor scale = HostTensor::of(DType::f32, {2, 1, 1}, {10, 100});
  EXPECT_EQ(load_weight_row(weight.view(), scale.view(), 1, 1), (std::vector{700.0, 800.0}));
}

TEST(BlockDotsTest, short_sums_drop_low_bits_within_a_block_but_not_between_blocks) {
  std::vector<double> left(256, 0.0);
  left[0] = 1.0;
  left[1] = 0x1p-14;    // 13 bits cannot hold it beside 1
  left[128] = 0x1p-14;  // the sum of another block
  const std::vector<double> ones(left.size(), 1.0);
  const std::vector<std::span<const double>> rights{ones, left};
  const std::vector<double> whole{1.0 + 0x1p-13, 1.0 + 0x1p-27};
  EXPECT_EQ(block_dots(Arithmetic::exact, left, rights), whole);
  for (const Arithmetic rough : {Arithmetic::naive, Arithmetic::crossed, Arithmetic::random(2)}) {
    EXPECT_EQ(block_dots(rough, left, rights), dots(rough, left, rights));
  }
  EXPECT_EQ(block_dots(Arithmetic::random(0), left, rights).front(), 1.0 + 0x1p-14);
}

}  // namespace
}  // namespace quire::reference
