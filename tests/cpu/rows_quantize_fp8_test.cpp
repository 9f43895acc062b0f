// SPDX-License-Identifier: Apache-2.0
// quantize_fp8 on every target against the reference, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "cpu/row_target.h"
#include "quire/ops/quantize_fp8.h"
#include "reference/quantize_fp8.h"

namespace quire::cpu {
namespace {

using test::HostTensor;

struct Shape {
  std::int64_t rows, columns, group_size;
};

class RowsQuantizeFp8 : public RowTarget {
 protected:
  // out and scale start as the same poison.
  void expect_equal(QuantizeFp8Args args, DType out_dtype, bool m_major = false,
                    DType scale_dtype = DType::f32) {
    const std::int64_t rows = args.x.shape[0];
    const std::int64_t columns = args.x.shape[1];
    const std::int64_t size = args.group_size < 0 ? columns : args.group_size;
    const std::int64_t groups = (columns + size - 1) / size;
    const auto run = [&](HostTensor& out, HostTensor& scale, auto&& op) {
      args.out = out.view();
      args.out.shape[1] = columns;  // two columns of padding stay as they are
      args.scale = scale.view();
      if (m_major) {
        std::swap(args.scale.shape[0], args.scale.shape[1]);
        std::swap(args.scale.strides[0], args.scale.strides[1]);
      }
      op(args);
    };
    const std::vector<std::int64_t> scale_shape =
        m_major ? std::vector{groups, rows} : std::vector{rows, groups};
    HostTensor out(out_dtype, {rows, columns + 2});
    HostTensor scale(scale_dtype, scale_shape);
    run(out, scale, [](const QuantizeFp8Args& a) { reference::quantize_fp8(a); });
    for (const int threads : thread_counts_) {
      HostTensor have(out_dtype, {rows, columns + 2});
      HostTensor have_scale(scale_dtype, scale_shape);
      run(have, have_scale, [&](const QuantizeFp8Args& a) {
        ASSERT_EQ(supports(a, context(threads)).kernel, kernel("quantize_fp8"));
        quantize_fp8(a, context(threads));
      });
      ASSERT_TRUE(have_scale.bytes() == scale.bytes()) << "scales, " << threads << " threads";
      ASSERT_TRUE(have.bytes() == out.bytes()) << "codes, " << threads << " threads";
    }
  }
};

TEST_P(RowsQuantizeFp8, AnyNumbersInAnyGroups) {
  const Shape shapes[] = {{3, 256, 128}, {1, 1, -1},   {70, 37, 5}, {5, 200, 128},
                          {130, 40, 16}, {2, 515, -1}, {0, 8, 4},   {4, 9, 1000}};
  for (const Numbers numbers : kAllNumbers) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const Shape& shape : shapes) {
        const HostTensor x = make_numbers(numbers, dtype, {shape.rows, shape.columns}, 17);
        for (const DType out : {DType::fp8_e4m3, DType::fp8_e5m2}) {
          for (const ScaleRounding rounding : {ScaleRounding::exact, ScaleRounding::power_of_two}) {
            const QuantizeFp8Args args{.x = x.view(),
                                       .group_size = shape.group_size,
                                       .scale_rounding = rounding,
                                       .out = {},
                                       .scale = {}};
            expect_equal(args, out, shape.rows == 3);
            if (rounding == ScaleRounding::exact) continue;
            expect_equal(args, out, shape.rows == 3, DType::e8m0);
          }
        }
      }
    }
  }
}

TEST_P(RowsQuantizeFp8, AnyNumberOfThreads) {
  thread_counts_ = kThreadCounts;
  const HostTensor x = make_numbers(Numbers::ordinary, DType::bf16, {300, 200}, 19);
  expect_equal({.x = x.view(), .group_size = 128, .out = {}, .scale = {}}, DType::fp8_e4m3);
  expect_equal({.x = x.view(), .out = {}, .scale = {}}, DType::fp8_e5m2);
}

TEST_P(RowsQuantizeFp8, AnUpperBoundSaturates) {
  for (const double bound : {1.5, 1.0 / 3.0, 1e-12, 1e30}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const HostTensor x = make_numbers(Numbers::ordinary, dtype, {20, 64}, 3);
      expect_equal(
          {.x = x.view(), .group_size = 16, .scale_upper_bound = bound, .out = {}, .scale = {}},
          DType::fp8_e4m3);
    }
  }
}

TEST_P(RowsQuantizeFp8, ZeroAndNanGroups) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const HostTensor x =
      HostTensor::of(DType::f32, {4, 3}, {0, -0.0, 0, nan, 0, -0.0, nan, nan, -nan, nan, 2, -7});
  for (const ScaleRounding rounding : {ScaleRounding::exact, ScaleRounding::power_of_two}) {
    expect_equal({.x = x.view(), .scale_rounding = rounding, .out = {}, .scale = {}},
                 DType::fp8_e4m3);
  }
}

// Significands decide alone: groups of one largest magnitude in [1, 2) and every smaller number of
// the type down to 2^-11 of it, for every such magnitude.
void fill_every_pair(const HostTensor& x, int mantissa_bits, int step) {
  const TensorView view = x.view();
  const int count = 1 << mantissa_bits;
  for (std::int64_t row = 0; row < view.shape[0]; ++row) {
    const double largest = 1.0 + static_cast<double>(row * step) / count;
    view.store({row, 0}, largest);
    for (std::int64_t column = 1; column < view.shape[1]; ++column) {
      const double mantissa = 1.0 + static_cast<double>((column - 1) % count) / count;
      const double value = std::ldexp(mantissa, -static_cast<int>((column - 1) / count));
      view.store({row, column}, value <= largest ? value : 0.0);
    }
  }
}

TEST_P(RowsQuantizeFp8, EveryPairOfBf16Significands) {
  const HostTensor x(DType::bf16, {128, 1 + 12 * 128});
  fill_every_pair(x, 7, 1);
  expect_equal({.x = x.view(), .out = {}, .scale = {}}, DType::fp8_e4m3);
  expect_equal({.x = x.view(), .out = {}, .scale = {}}, DType::fp8_e5m2);
}

TEST_P(RowsQuantizeFp8, EverySixteenthPairOfF16Significands) {
  const HostTensor x(DType::f16, {64, 1 + 12 * 1024});
  fill_every_pair(x, 10, 16);
  expect_equal({.x = x.view(), .out = {}, .scale = {}}, DType::fp8_e4m3);
}

INSTANTIATE_TEST_SUITE_P(Targets, RowsQuantizeFp8, kEveryTarget, target_name);

}  // namespace
}  // namespace quire::cpu
