// SPDX-License-Identifier: Apache-2.0
#include "quire/element.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

namespace quire {
namespace {

class ElementTest : public testing::TestWithParam<DType> {};

TEST_P(ElementTest, StoreTouchesOnlyItsOwnBits) {
  const DType dtype = GetParam();
  for (std::int64_t index = 0; index < 6; ++index) {
    std::array<unsigned char, 64> memory;
    memory.fill(0xa5);
    const double left = index > 0 ? load_element(memory.data(), dtype, index - 1) : 0;
    const double right = load_element(memory.data(), dtype, index + 1);
    store_element(memory.data(), dtype, index, 4.0);  // e8m0 has powers of two alone
    EXPECT_EQ(load_element(memory.data(), dtype, index), 4.0);
    if (index > 0) {
      EXPECT_EQ(load_element(memory.data(), dtype, index - 1), left);
    }
    EXPECT_EQ(load_element(memory.data(), dtype, index + 1), right);
  }
}

TEST_P(ElementTest, NameReadsBack) {
  EXPECT_EQ(dtype_from_name(name(GetParam())), GetParam());
}

TEST_P(ElementTest, BytesForCoversWholeElements) {
  const DType dtype = GetParam();
  EXPECT_EQ(bytes_for(dtype, 0), 0);
  EXPECT_EQ(bytes_for(dtype, 2), 2 * bits(dtype) / 8);
  EXPECT_EQ(bytes_for(dtype, 3), (3 * bits(dtype) + 7) / 8);
}

INSTANTIATE_TEST_SUITE_P(AllDTypes, ElementTest, testing::ValuesIn(kAllDTypes),
                         [](const auto& info) { return std::string(name(info.param)); });

struct Rounding {
  DType dtype;
  double value;
  double expected;
};

class RoundToTest : public testing::TestWithParam<Rounding> {};

TEST_P(RoundToTest, GivesTheNearestValueOfTheType) {
  const Rounding& row = GetParam();
  EXPECT_EQ(round_to(row.dtype, row.value), row.expected);
}

constexpr double kHuge = 1e30;
INSTANTIATE_TEST_SUITE_P(
    Table, RoundToTest,
    testing::Values(
        Rounding{DType::i8, 2.5, 2}, Rounding{DType::i8, 3.5, 4}, Rounding{DType::i8, -2.5, -2},
        Rounding{DType::i8, 127.4, 127}, Rounding{DType::i8, 300, 127},
        Rounding{DType::i8, -300, -128}, Rounding{DType::i4, 9, 7}, Rounding{DType::i4, -9, -8},
        Rounding{DType::i4, -0.5, 0}, Rounding{DType::u4, -3, 0}, Rounding{DType::u4, 99, 15},
        Rounding{DType::u8, 256, 255}, Rounding{DType::u32, kHuge, 4294967295.0},
        Rounding{DType::i32, -kHuge, -2147483648.0}, Rounding{DType::fp8_e4m3, 1000, 448},
        Rounding{DType::fp8_e4m3, -kHuge, -448}, Rounding{DType::fp8_e5m2, 1e9, 57344},
        Rounding{DType::fp8_e4m3, 0x1p-10, 0}, Rounding{DType::fp8_e4m3, 0x1.8p-10, 0x1p-9},
        Rounding{DType::f16, 65519.9, 65504}, Rounding{DType::bf16, 1.00390625, 1.0},
        Rounding{DType::bf16, 1.01171875, 1.015625}, Rounding{DType::f32, 16777217.0, 16777216.0}));

TEST(Element, NanBecomesZeroInIntegersAndStaysNanInFloats) {
  const double nan = std::nan("");
  for (const DType dtype : kAllDTypes) {
    const double stored = round_to(dtype, nan);
    const bool has_nan = is_float(dtype) || dtype == DType::e8m0;
    EXPECT_EQ(std::isnan(stored), has_nan) << name(dtype);
    if (!has_nan) {
      EXPECT_EQ(stored, 0.0) << name(dtype);
    }
  }
}

TEST(Element, PowersOfTwoAreRoundedUpTo) {
  EXPECT_EQ(round_to(DType::e8m0, 1.0), 1.0);
  EXPECT_EQ(round_to(DType::e8m0, 0x1.0000000000001p0), 2.0);
  EXPECT_EQ(round_to(DType::e8m0, 0x1.fffffffffffffp-1), 1.0);
  EXPECT_EQ(round_to(DType::e8m0, 3.0), 4.0);
  // Neither sign nor zero nor infinity.
  for (const double below : {0.0, -1.0, 0x1p-127, 1e-300, -kHuge}) {
    EXPECT_EQ(round_to(DType::e8m0, below), 0x1p-127) << below;
  }
  EXPECT_EQ(round_to(DType::e8m0, 0x1.8p-127), 0x1p-126);
  EXPECT_EQ(round_to(DType::e8m0, 0x1.8p127), 0x1p127);
  EXPECT_EQ(round_to(DType::e8m0, std::numeric_limits<double>::infinity()), 0x1p127);
  const std::array<unsigned char, 4> codes{0, 127, 254, 255};
  EXPECT_EQ(load_element(codes.data(), DType::e8m0, 0), 0x1p-127);
  EXPECT_EQ(load_element(codes.data(), DType::e8m0, 1), 1.0);
  EXPECT_EQ(load_element(codes.data(), DType::e8m0, 2), 0x1p127);
  EXPECT_TRUE(std::isnan(load_element(codes.data(), DType::e8m0, 3)));
}

TEST(Element, HalfFormatsOverflowToInfinity) {
  EXPECT_EQ(round_to(DType::f16, 65520.0), std::numeric_limits<double>::infinity());
  EXPECT_EQ(round_to(DType::bf16, -1e39), -std::numeric_limits<double>::infinity());
}

TEST(Element, PackedNibblesPutTheEvenElementLow) {
  std::array<unsigned char, 2> memory{0x2f, 0x81};
  EXPECT_EQ(load_element(memory.data(), DType::u4, 0), 15);
  EXPECT_EQ(load_element(memory.data(), DType::u4, 1), 2);
  EXPECT_EQ(load_element(memory.data(), DType::i4, 0), -1);
  EXPECT_EQ(load_element(memory.data(), DType::i4, 3), -8);
  store_element(memory.data(), DType::i4, 2, -3);
  EXPECT_EQ(memory[1], 0x8d);
}

TEST(Element, MaxFiniteIsTheLargestNumberTheTypeKeeps) {
  EXPECT_EQ(max_finite(DType::fp8_e4m3), 448);
  EXPECT_EQ(max_finite(DType::fp8_e5m2), 57344);
  EXPECT_EQ(max_finite(DType::f16), 65504);
  EXPECT_EQ(max_finite(DType::i8), 127);
  EXPECT_EQ(max_finite(DType::e8m0), 0x1p127);
  EXPECT_EQ(max_finite(DType::f32), std::numeric_limits<float>::max());
}

TEST(Element, UnknownDtypeNameIsNotGuessed) {
  EXPECT_FALSE(dtype_from_name("float32").has_value());
  EXPECT_FALSE(dtype_from_name("").has_value());
}

TEST(Element, LoadsFromUnalignedAddresses) {
  alignas(8) std::array<unsigned char, 16> memory{};
  store_element(memory.data() + 1, DType::f32, 1, -1.5);
  EXPECT_EQ(load_element(memory.data() + 1, DType::f32, 1), -1.5);
}

}  // namespace
}  // namespace quire
