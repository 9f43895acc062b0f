// SPDX-License-Identifier: Apache-2.0
#include "reference/gguf.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/block_format.h"
#include "quire/element.h"

namespace quire::reference {
namespace {

void put_f16(std::vector<std::uint8_t>& block, std::int64_t offset, double value) {
  store_element(block.data() + offset, DType::f16, 0, value);
}

struct GoldenBlock {
  WeightFormat format;
  std::vector<std::pair<std::int64_t, double>> f16_fields;  // offset, value
  double sum;                                               // of the values
  double weighted;                                          // of column · value
  std::vector<std::pair<std::size_t, double>> some;
};

class GgufGolden : public testing::TestWithParam<GoldenBlock> {};

// Byte i is 37 i + 11 outside the f16 fields; the numbers are those of gguf-py 0.19's dequantize.
// All of them are exact in double.
TEST_P(GgufGolden, AgreesWithGgufPy) {
  const GoldenBlock& golden = GetParam();
  const BlockFormat& format = block_format(golden.format);
  std::vector<std::uint8_t> block(static_cast<std::size_t>(format.bytes));
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = static_cast<std::uint8_t>(37 * i + 11);
  for (const auto& [offset, value] : golden.f16_fields) put_f16(block, offset, value);

  const std::vector<double> values = dequantize_gguf_block(golden.format, block.data());
  ASSERT_EQ(static_cast<std::int64_t>(values.size()), format.columns);
  double sum = 0.0;
  double weighted = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum += values[i];
    weighted += static_cast<double>(i) * values[i];
  }
  EXPECT_EQ(sum, golden.sum);
  EXPECT_EQ(weighted, golden.weighted);
  for (const auto& [column, value] : golden.some) EXPECT_EQ(values[column], value) << column;
}

const double kMxfp4Unit = std::ldexp(1.0, 11 - 126);

INSTANTIATE_TEST_SUITE_P(
    Formats, GgufGolden,
    testing::Values(
        GoldenBlock{WeightFormat::q4_0,
                    {{0, 0.5}},
                    -10.5,
                    -248.5,
                    {{0, -1.5}, {1, 1.0}, {15, -4.0}, {16, -1.5}, {31, 0.0}}},
        GoldenBlock{WeightFormat::q4_1,
                    {{0, 0.5}, {2, -3.25}},
                    18.5,
                    257.0,
                    {{0, 4.25}, {1, -1.25}, {15, 1.75}, {16, 1.25}, {31, 2.75}}},
        GoldenBlock{WeightFormat::q5_0,
                    {{0, 0.5}},
                    7.5,
                    48.5,
                    {{0, 4.5}, {1, -1.0}, {15, -6.0}, {16, 7.0}, {31, 0.5}}},
        GoldenBlock{WeightFormat::q5_1,
                    {{0, 0.25}, {2, -3.5}},
                    14.25,
                    113.0,
                    {{0, 1.25}, {1, 2.5}, {15, 4.0}, {16, 1.25}, {31, -2.25}}},
        GoldenBlock{WeightFormat::iq4_nl,
                    {{0, 0.125}},
                    -32.125,
                    -832.75,
                    {{0, -4.375}, {1, 3.125}, {15, -15.875}, {16, -4.375}, {31, 0.125}}},
        GoldenBlock{WeightFormat::mxfp4,  // the first byte, 11, is the exponent
                    {},
                    kMxfp4Unit * 6.25,
                    kMxfp4Unit * 153.25,
                    {{0, 0.0},
                     {1, kMxfp4Unit * 1.5},
                     {15, kMxfp4Unit * -0.75},
                     {16, kMxfp4Unit * 0.75},
                     {31, kMxfp4Unit * 1.5}}},
        GoldenBlock{WeightFormat::q8_0,
                    {{0, 0.25}},
                    -44.0,
                    -1976.0,
                    {{0, 21.25}, {1, 30.5}, {15, -32.0}, {16, -22.75}, {31, -12.0}}},
        GoldenBlock{
            WeightFormat::q4_k,
            {{0, 0.5}, {2, 0.25}},
            27220.0,
            3759200.0,
            {{0, 157.75}, {32, 4.0}, {64, 210.25}, {100, 47.5}, {160, 262.5}, {255, 24.25}}},
        GoldenBlock{
            WeightFormat::q5_k,
            {{0, 0.5}, {2, 0.25}},
            58108.0,
            7955616.0,
            {{0, 405.75}, {32, 56.0}, {64, 210.25}, {100, 117.5}, {160, 82.5}, {255, 54.25}}},
        GoldenBlock{WeightFormat::q6_k,
                    {{208, 0.125}},
                    576.5,
                    97476.0,
                    {{0, -178.875},
                     {32, 28.875},
                     {64, -380.0},
                     {100, 315.375},
                     {160, 83.875},
                     {255, -7.5}}}),
    [](const auto& test) { return std::string(name(test.param.format)); });

TEST(Gguf, Q4ZeroLowNibblesComeFirst) {
  std::vector<std::uint8_t> block(18, 0x88);  // codes 8: zeros
  put_f16(block, 0, 2.0);
  block[2] = 0xf0;   // columns 0 and 16
  block[17] = 0x9a;  // columns 15 and 31
  const std::vector<double> values = dequantize_gguf_block(WeightFormat::q4_0, block.data());
  std::vector<double> expected(32, 0.0);
  expected[0] = -16.0;
  expected[16] = 14.0;
  expected[15] = 4.0;
  expected[31] = 2.0;
  EXPECT_EQ(values, expected);
}

TEST(Gguf, Q5HighBitsAreInTheOrderOfColumns) {
  std::vector<std::uint8_t> block(22, 0);
  put_f16(block, 0, 1.0);
  block[2] = 0x02;  // column 1
  block[5] = 0x80;  // column 31
  block[6 + 15] = 0x50;
  const std::vector<double> values = dequantize_gguf_block(WeightFormat::q5_0, block.data());
  std::vector<double> expected(32, -16.0);
  expected[1] = 0.0;
  expected[31] = 5.0;
  EXPECT_EQ(values, expected);
}

// gguf-py has no NaN among the exponents: 255 is 2^128 for the code of 1.
TEST(Gguf, Mxfp4TakesEveryExponent) {
  for (const int exponent : {0, 1, 2, 127, 254, 255}) {
    std::vector<std::uint8_t> block(17, 0x2a);  // 1 and −1
    block[0] = static_cast<std::uint8_t>(exponent);
    const std::vector<double> values = dequantize_gguf_block(WeightFormat::mxfp4, block.data());
    EXPECT_EQ(values[0], -std::ldexp(1.0, exponent - 127)) << exponent;
    EXPECT_EQ(values[16], std::ldexp(1.0, exponent - 127)) << exponent;
  }
}

TEST(Gguf, Q8ZeroCodesAreSigned) {
  std::vector<std::uint8_t> block(34, 0);
  put_f16(block, 0, 0.5);
  block[2] = 0x80;
  block[33] = 0x7f;
  const std::vector<double> values = dequantize_gguf_block(WeightFormat::q8_0, block.data());
  EXPECT_EQ(values[0], -64.0);
  EXPECT_EQ(values[1], 0.0);
  EXPECT_EQ(values[31], 63.5);
}

// Group g gets scale s(g) and min m(g), both of six bits, with codes of 1.
std::vector<double> q4_k_of_ones(const std::array<int, 8>& scales, const std::array<int, 8>& mins) {
  std::vector<std::uint8_t> block(144, 0x11);
  put_f16(block, 0, 1.0);
  put_f16(block, 2, 1.0);
  for (std::size_t g = 0; g < 4; ++g) {
    block[4 + g] = static_cast<std::uint8_t>(scales[g] | (scales[g + 4] >> 4 << 6));
    block[8 + g] = static_cast<std::uint8_t>(mins[g] | (mins[g + 4] >> 4 << 6));
    block[12 + g] = static_cast<std::uint8_t>((scales[g + 4] & 15) | ((mins[g + 4] & 15) << 4));
  }
  return dequantize_gguf_block(WeightFormat::q4_k, block.data());
}

TEST(Gguf, Q4KUnpacksSixBitScalesAndMins) {
  const std::array<int, 8> scales{63, 1, 32, 17, 62, 33, 5, 48};
  const std::array<int, 8> mins{0, 63, 31, 2, 16, 47, 61, 9};
  const std::vector<double> values = q4_k_of_ones(scales, mins);
  for (std::size_t column = 0; column < 256; ++column) {
    EXPECT_EQ(values[column], scales[column / 32] - mins[column / 32]) << column;
  }
}

TEST(Gguf, Q4KPairsOfGroupsShareBytes) {
  std::vector<std::uint8_t> block(144, 0);
  put_f16(block, 0, 1.0);
  for (std::size_t g = 0; g < 4; ++g) block[4 + g] = 1;   // scales 0..3 = 1
  for (std::size_t g = 0; g < 4; ++g) block[12 + g] = 1;  // scales 4..7 = 1
  block[16 + 32 + 5] = 0xa3;                              // groups 2 and 3, lane 5
  const std::vector<double> values = dequantize_gguf_block(WeightFormat::q4_k, block.data());
  std::vector<double> expected(256, 0.0);
  expected[2 * 32 + 5] = 3.0;
  expected[3 * 32 + 5] = 10.0;
  EXPECT_EQ(values, expected);
}

TEST(Gguf, Q5KHighBitsOfEightGroupsShareAByte) {
  std::vector<std::uint8_t> block(176, 0);
  put_f16(block, 0, 1.0);
  for (std::size_t g = 0; g < 4; ++g) block[4 + g] = 1;
  for (std::size_t g = 0; g < 4; ++g) block[12 + g] = 1;
  block[16 + 5] = 0x88;       // lane 5 of groups 3 and 7
  block[48 + 32 + 5] = 0xa3;  // groups 2 and 3
  const std::vector<double> values = dequantize_gguf_block(WeightFormat::q5_k, block.data());
  std::vector<double> expected(256, 0.0);
  expected[2 * 32 + 5] = 3.0;
  expected[3 * 32 + 5] = 26.0;
  expected[7 * 32 + 5] = 16.0;
  EXPECT_EQ(values, expected);
}

TEST(Gguf, Q6KJoinsFourLowBitsAndTwoHighBits) {
  std::vector<std::uint8_t> block(210, 0);
  put_f16(block, 208, 1.0);
  for (std::size_t g = 0; g < 16; ++g) block[192 + g] = static_cast<std::uint8_t>(g + 1);
  block[64 + 32 + 3] = 0x5c;   // second half, columns 35 (12) and 99 (5) of it
  block[128 + 32 + 3] = 0xe4;  // high pairs 0, 1, 2, 3 of columns 3, 35, 67, 99
  const std::vector<double> values = dequantize_gguf_block(WeightFormat::q6_k, block.data());
  EXPECT_EQ(values[128 + 3], 9 * (0 - 32));
  EXPECT_EQ(values[128 + 35], 11 * (12 + 16 - 32));
  EXPECT_EQ(values[128 + 67], 13 * (32 - 32));
  EXPECT_EQ(values[128 + 99], 15 * (5 + 48 - 32));
  EXPECT_EQ(values[0], 1 * -32);
}

TEST(Gguf, Q6KScalesAreSigned) {
  std::vector<std::uint8_t> block(210, 0);
  put_f16(block, 208, 0.5);
  block[192] = 0xff;  // -1
  const std::vector<double> values = dequantize_gguf_block(WeightFormat::q6_k, block.data());
  EXPECT_EQ(values[0], 16.0);
  EXPECT_EQ(values[16], 0.0);
}

}  // namespace
}  // namespace quire::reference
