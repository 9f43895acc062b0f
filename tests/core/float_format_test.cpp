// SPDX-License-Identifier: Apache-2.0
// The encoder against a search over all codes, the decoder against ldexp: neither shares code with
// the formats.
#include "quire/float_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace quire {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Format {
  std::string name;
  int exponent_bits;
  int mantissa_bits;
  bool finite_only;
  bool saturates;
  double (*decode)(std::uint32_t);
  std::uint32_t (*encode)(double);
};

std::ostream& operator<<(std::ostream& out, const Format& format) {
  return out << format.name;
}

const Format kFormats[] = {
    {"f16", 5, 10, false, false, decode_float<kFloat16>, encode_float<kFloat16>},
    {"bf16", 8, 7, false, false, decode_float<kBFloat16>, encode_float<kBFloat16>},
    {"fp8_e4m3", 4, 3, true, true, decode_float<kFp8E4M3>, encode_float<kFp8E4M3>},
    {"fp8_e5m2", 5, 2, false, true, decode_float<kFp8E5M2>, encode_float<kFp8E5M2>},
};

int width(const Format& f) {
  return 1 + f.exponent_bits + f.mantissa_bits;
}
std::uint32_t sign_bit(const Format& f) {
  return 1u << (width(f) - 1);
}

double decode_by_ldexp(const Format& f, std::uint32_t code) {
  const bool negative = (code & sign_bit(f)) != 0;
  const int fields = static_cast<int>(code & (sign_bit(f) - 1));
  const int exponent = fields >> f.mantissa_bits;
  const int mantissa = fields & ((1 << f.mantissa_bits) - 1);
  const int top = (1 << f.exponent_bits) - 1;
  const int bias = top / 2;
  double value = 0;
  if (exponent == top && !f.finite_only) {
    value = mantissa == 0 ? kInfinity : std::nan("");
  } else if (exponent == top && mantissa == (1 << f.mantissa_bits) - 1) {
    value = std::nan("");
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - bias - f.mantissa_bits);
  } else {
    value = std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - bias - f.mantissa_bits);
  }
  return negative ? -value : value;
}

// Finite magnitudes in code order: the magnitude codes of a float format are sorted by value.
std::vector<double> finite_magnitudes(const Format& f) {
  std::vector<double> values;
  for (std::uint32_t code = 0; code < sign_bit(f); ++code) {
    const double value = decode_by_ldexp(f, code);
    if (!std::isfinite(value)) break;
    values.push_back(value);
  }
  return values;
}

// The definition of round to nearest even, by search.
std::uint32_t nearest_code(const Format& f, const std::vector<double>& magnitudes, double value) {
  const std::uint32_t sign = std::signbit(value) ? sign_bit(f) : 0;
  const double magnitude = std::fabs(value);
  const auto above = std::lower_bound(magnitudes.begin(), magnitudes.end(), magnitude);
  const auto last = static_cast<std::uint32_t>(magnitudes.size() - 1);
  if (above == magnitudes.end()) {
    const double step = magnitudes[last] - magnitudes[last - 1];
    const bool rounds_down = magnitude < magnitudes[last] + step / 2;
    return sign | (rounds_down || f.saturates ? last : last + 1);
  }
  const auto high = static_cast<std::uint32_t>(above - magnitudes.begin());
  if (magnitudes[high] == magnitude || high == 0) return sign | high;
  const double up = magnitudes[high] - magnitude;
  const double down = magnitude - magnitudes[high - 1];
  if (up == down) return sign | (high % 2 == 0 ? high : high - 1);
  return sign | (up < down ? high : high - 1);
}

class FloatFormatTest : public testing::TestWithParam<Format> {};

TEST_P(FloatFormatTest, EveryCodeDecodesAsItsFieldsSay) {
  const Format& f = GetParam();
  for (std::uint32_t code = 0; code < 2 * sign_bit(f); ++code) {
    const double expected = decode_by_ldexp(f, code);
    const double actual = f.decode(code);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(actual)) << code;
    } else {
      EXPECT_EQ(actual, expected) << code;
      EXPECT_EQ(std::signbit(actual), std::signbit(expected)) << code;
    }
  }
}

TEST_P(FloatFormatTest, EveryFiniteCodeSurvivesTheRoundTrip) {
  const Format& f = GetParam();
  for (std::uint32_t code = 0; code < 2 * sign_bit(f); ++code) {
    const double value = f.decode(code);
    if (std::isfinite(value)) {
      EXPECT_EQ(f.encode(value), code);
    }
  }
}

TEST_P(FloatFormatTest, HalfwayPointsGoToEvenAndTheirNeighboursToTheNearest) {
  const Format& f = GetParam();
  const std::vector<double> magnitudes = finite_magnitudes(f);
  for (std::size_t i = 0; i + 1 < magnitudes.size(); ++i) {
    const double middle = (magnitudes[i] + magnitudes[i + 1]) / 2;
    for (const double value :
         {std::nextafter(middle, 0.0), middle, std::nextafter(middle, 1e300)}) {
      EXPECT_EQ(f.encode(value), nearest_code(f, magnitudes, value)) << value;
      EXPECT_EQ(f.encode(-value), nearest_code(f, magnitudes, -value)) << -value;
    }
  }
}

TEST_P(FloatFormatTest, RandomValuesOfEveryScaleGoToTheNearest) {
  const Format& f = GetParam();
  const std::vector<double> magnitudes = finite_magnitudes(f);
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> mantissa(-2, 2);
  std::uniform_int_distribution<int> exponent(-150, 130);
  for (int i = 0; i < 200000; ++i) {
    const double value = std::ldexp(mantissa(random), exponent(random));
    ASSERT_EQ(f.encode(value), nearest_code(f, magnitudes, value)) << value;
  }
}

TEST_P(FloatFormatTest, BeyondTheRangeSaturatesOrBecomesInfinite) {
  const Format& f = GetParam();
  const double largest = finite_magnitudes(f).back();
  const double expected = f.saturates ? largest : kInfinity;
  for (const double value : {largest * 2, 1e300, kInfinity}) {
    EXPECT_EQ(f.decode(f.encode(value)), expected);
    EXPECT_EQ(f.decode(f.encode(-value)), -expected);
  }
}

TEST_P(FloatFormatTest, NanStaysNanAndTinyValuesKeepTheirSign) {
  const Format& f = GetParam();
  EXPECT_TRUE(std::isnan(f.decode(f.encode(std::nan("")))));
  EXPECT_EQ(f.encode(1e-300), 0u);
  EXPECT_EQ(f.encode(-1e-300), sign_bit(f));
  EXPECT_EQ(f.encode(std::numeric_limits<double>::denorm_min()), 0u);
}

INSTANTIATE_TEST_SUITE_P(AllFormats, FloatFormatTest, testing::ValuesIn(kFormats),
                         [](const auto& info) { return info.param.name; });

TEST(FloatFormat, ConversionsWorkAtCompileTime) {
  static_assert(decode_float<kFp8E4M3>(0x7e) == 448.0);
  static_assert(decode_float<kFp8E5M2>(0x7b) == 57344.0);
  static_assert(encode_float<kBFloat16>(1.0) == 0x3f80);
  static_assert(encode_float<kFp8E4M3>(1e9) == 0x7e);
  // 1 + 2^-8 + 2^-30: rounding to float first would leave a tie and drop the last bit.
  static_assert(encode_float<kBFloat16>(1.0 + 0x1p-8 + 0x1p-30) == 0x3f81);
}

}  // namespace
}  // namespace quire
