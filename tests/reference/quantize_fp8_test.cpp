// SPDX-License-Identifier: Apache-2.0
#include "reference/quantize_fp8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "quire/element.h"
#include "support/host_tensor.h"

namespace quire::reference {
namespace {

using test::HostTensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Quantized {
  std::vector<double> codes;
  std::vector<double> scales;
};

struct Options {
  std::int64_t group_size = -1;
  double scale_upper_bound = kInfinity;
  ScaleRounding scale_rounding = ScaleRounding::exact;
  DType out_dtype = DType::fp8_e4m3;
};

Quantized quantize(const HostTensor& x, const Options& options) {
  const std::int64_t rows = x.view().shape[0];
  const std::int64_t columns = x.view().shape[1];
  const std::int64_t size = options.group_size < 0 ? columns : options.group_size;
  const HostTensor out(options.out_dtype, {rows, columns});
  const HostTensor scale(DType::f32, {rows, (columns + size - 1) / size});
  reference::quantize_fp8({.x = x.view(),
                           .group_size = options.group_size,
                           .scale_upper_bound = options.scale_upper_bound,
                           .scale_rounding = options.scale_rounding,
                           .out = out.view(),
                           .scale = scale.view()});
  return {out.values(), scale.values()};
}

TEST(QuantizeFp8, OneScalePerRow) {
  const HostTensor x = HostTensor::of(DType::f32, {2, 3}, {1, -224, 112, 896, 2, 0});
  const Quantized q = quantize(x, {});
  EXPECT_EQ(q.scales, (std::vector<double>{0.5, 2}));
  EXPECT_EQ(q.codes, (std::vector<double>{2, -448, 224, 448, 1, 0}));
}

TEST(QuantizeFp8, GroupsWithAShortTail) {
  const HostTensor x = HostTensor::of(DType::f32, {1, 5}, {448, 1, 896, 2, 1792});
  const Quantized q = quantize(x, {.group_size = 2});
  EXPECT_EQ(q.scales, (std::vector<double>{1, 2, 4}));
  EXPECT_EQ(q.codes, (std::vector<double>{448, 1, 448, 1, 448}));
}

TEST(QuantizeFp8, ZeroGroupGivesZeroAndZeros) {
  const HostTensor x = HostTensor::of(DType::bf16, {1, 4}, {0, 0, 448, 0});
  const Quantized q = quantize(x, {.group_size = 2});
  EXPECT_EQ(q.scales, (std::vector<double>{0, 1}));
  EXPECT_EQ(q.codes, (std::vector<double>{0, 0, 448, 0}));
}

TEST(QuantizeFp8, UpperBoundSaturatesWhatIsAboveIt) {
  const HostTensor x = HostTensor::of(DType::f32, {1, 3}, {5000, 1200, -600});
  const Quantized q = quantize(x, {.scale_upper_bound = 1200.0});
  const double scale = round_to(DType::f32, 1200.0 / 448.0);
  EXPECT_EQ(q.scales, std::vector<double>{scale});
  EXPECT_EQ(q.codes, (std::vector<double>{448, 448, -224}));
}

TEST(QuantizeFp8, NanStaysNanAndDoesNotCount) {
  const HostTensor x = HostTensor::of(DType::f32, {1, 3}, {std::nan(""), 448, 7});
  const Quantized q = quantize(x, {});
  EXPECT_EQ(q.scales, std::vector<double>{1});
  EXPECT_TRUE(std::isnan(q.codes[0]));
  EXPECT_EQ(q.codes[2], 7.0);
}

TEST(QuantizeFp8, ScalesMayBeMMajor) {
  const HostTensor x = HostTensor::of(DType::f32, {2, 4}, {448, 0, 896, 0, 1792, 0, 3584, 0});
  const HostTensor out(DType::fp8_e4m3, {2, 4});
  const HostTensor scale(DType::f32, {2, 4});  // [groups, rows rounded up to 4]
  TensorView transposed = scale.view();
  transposed.shape = {2, 2};
  transposed.strides = {1, 4};
  reference::quantize_fp8({.x = x.view(), .group_size = 2, .out = out.view(), .scale = transposed});
  EXPECT_EQ(scale.at({0, 0}), 1.0);
  EXPECT_EQ(scale.at({0, 1}), 4.0);
  EXPECT_EQ(scale.at({1, 0}), 2.0);
  EXPECT_EQ(scale.at({1, 1}), 8.0);
  EXPECT_TRUE(std::isnan(scale.at({0, 2})));
}

struct PowerCase {
  std::string name;
  double amax;
  double scale;
};

class PowerOfTwoScale : public testing::TestWithParam<PowerCase> {};

TEST_P(PowerOfTwoScale, RoundsUpExactly) {
  const PowerCase& c = GetParam();
  const HostTensor x = HostTensor::of(DType::f32, {1, 2}, {-c.amax, 0});
  const Quantized q = quantize(x, {.scale_rounding = ScaleRounding::power_of_two});
  EXPECT_EQ(q.scales, std::vector<double>{c.scale});
  EXPECT_EQ(q.codes[0], round_to(DType::fp8_e4m3, x.at({0, 0}) / c.scale));
  EXPECT_LE(std::abs(q.codes[0]), 448.0);
}

double f32_after(double value) {
  return std::nextafter(static_cast<float>(value), 1e30f);
}
double f32_before(double value) {
  return std::nextafter(static_cast<float>(value), 0.0f);
}

INSTANTIATE_TEST_SUITE_P(
    Values, PowerOfTwoScale,
    testing::Values(
        PowerCase{"exactly_one", 448, 1}, PowerCase{"just_above_one", f32_after(448), 2},
        PowerCase{"just_below_one", f32_before(448), 1}, PowerCase{"exactly_an_eighth", 56, 0.125},
        PowerCase{"just_above_an_eighth", f32_after(56), 0.25},
        PowerCase{"exactly_large", 448 * 0x1p40, 0x1p40},
        PowerCase{"just_above_large", f32_after(448 * 0x1p40), 0x1p41},
        PowerCase{"three", 3 * 448, 4}, PowerCase{"floor", 1e-20, 0x1p-33},
        PowerCase{"above_floor", 448 * 0x1p-32, 0x1p-32}, PowerCase{"zero", 0, 0x1p-33}),
    [](const auto& test) { return test.param.name; });

using SweepParam = std::tuple<DType, DType, std::int64_t>;  // x, out, group

class QuantizeFp8Sweep : public testing::TestWithParam<SweepParam> {};

TEST_P(QuantizeFp8Sweep, ReachesMaxFiniteAndStaysWithinHalfAStep) {
  const auto [x_dtype, out_dtype, group_size] = GetParam();
  constexpr std::int64_t kColumns = 40;
  const HostTensor x = HostTensor::random(x_dtype, {3, kColumns}, 6, 9.0);
  const Quantized q = quantize(x, {.group_size = group_size, .out_dtype = out_dtype});
  const std::int64_t size = group_size < 0 ? kColumns : group_size;
  const std::int64_t groups = (kColumns + size - 1) / size;
  // Half of the widest step, 2^-mantissa_bits of the power of two below the value, as a fraction of
  // it.
  const double half_step = out_dtype == DType::fp8_e4m3 ? 0x1p-4 : 0x1p-3;
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t group = 0; group < groups; ++group) {
      const double scale = q.scales[static_cast<std::size_t>(row * groups + group)];
      double largest = 0.0;
      for (std::int64_t c = group * size; c < std::min((group + 1) * size, kColumns); ++c) {
        const double code = q.codes[static_cast<std::size_t>(row * kColumns + c)];
        const double value = x.at({row, c});
        largest = std::max(largest, std::abs(code));
        EXPECT_LE(std::abs(code * scale - value), half_step * std::abs(value) + 1e-7);
      }
      EXPECT_EQ(largest, max_finite(out_dtype));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, QuantizeFp8Sweep,
                         testing::Combine(testing::Values(DType::f32, DType::f16, DType::bf16),
                                          testing::Values(DType::fp8_e4m3, DType::fp8_e5m2),
                                          testing::Values(-1, 8, 16, 1)),
                         [](const auto& test) {
                           const std::int64_t group = std::get<2>(test.param);
                           return std::string(name(std::get<0>(test.param))) + "_to_" +
                                  std::string(name(std::get<1>(test.param))) +
                                  (group < 0 ? "_per_row" : "_per_" + std::to_string(group));
                         });

}  // namespace
}  // namespace quire::reference
