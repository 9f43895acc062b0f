// SPDX-License-Identifier: Apache-2.0
// What Y is: dtypes, rounding, scales, quantized weights and caches.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "quire/element.h"
#include "quire/paged_kv_operand.h"
#include "reference/fused_qkv_matmul.h"
#include "reference/row_codec.h"
#include "reference/weight.h"
#include "support/cache_builder.h"
#include "support/host_tensor.h"

namespace quire::reference {
namespace {

using test::CacheOptions;
using test::HostTensor;
using test::TestCache;

// Small integers, exact in every dtype and in every order of summation.
HostTensor integers(DType dtype, std::vector<std::int64_t> shape, std::int64_t step) {
  HostTensor tensor(dtype, std::move(shape));
  const TensorView view = tensor.view();
  for (std::int64_t i = 0; i < view.numel(); ++i) {
    store_element(view.data, dtype, i, static_cast<double>((i * step) % 7 - 3));
  }
  return tensor;
}

// One sequence of three tokens, MLA with a row of 8, q_dim 4: N = 12.
constexpr std::int64_t kTokens = 3;
constexpr std::int64_t kQDim = 4;
constexpr std::int64_t kRow = 8;
constexpr std::int64_t kN = kQDim + kRow;

CacheOptions small_mla(const RowFormat& format = RowFormat::uniform(DType::f32, kRow)) {
  return {.new_tokens = {kTokens},
          .row_format = format,
          .num_layers = 1,
          .num_kv_heads = 1,
          .is_mla = true};
}

// Y [tokens][N] as the op left it: Q from out, the rest from the cache.
std::vector<double> written(const HostTensor& out, const TestCache& cache) {
  std::vector<double> y;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t n = 0; n < kQDim; ++n) y.push_back(out.at({t, n}));
    for (const double value : decode_row(PagedKvOperand(cache.view().key(0)), 0, 0, t))
      y.push_back(value);
  }
  return y;
}

FusedQkvArgs args_for(const HostTensor& x, const Weight& weight, const TestCache& cache,
                      const HostTensor& out) {
  return {.x = x.view(),
          .row_offsets = cache.row_offsets(),
          .weight = weight,
          .cache = cache.view(),
          .out = out.view()};
}

class FusedQkvDTypes : public testing::TestWithParam<std::tuple<DType, DType, DType, bool>> {};

TEST_P(FusedQkvDTypes, IntegersComeOutExactly) {
  const auto [x_dtype, weight_dtype, cache_dtype, has_bias] = GetParam();
  const TestCache cache(small_mla(RowFormat::uniform(cache_dtype, kRow)));
  const HostTensor x = integers(x_dtype, {kTokens, 5}, 3);
  const HostTensor weight = integers(weight_dtype, {kN, 5}, 5);
  const HostTensor bias = integers(DType::f32, {kN}, 4);
  const HostTensor out(x_dtype, {kTokens, kQDim});
  FusedQkvArgs args = args_for(x, {.data = weight.view()}, cache, out);
  if (has_bias) args.bias = bias.view();
  reference::fused_qkv_matmul(args);

  std::vector<double> expected;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t n = 0; n < kN; ++n) {
      double sum = has_bias ? bias.at({n}) : 0.0;
      for (std::int64_t k = 0; k < 5; ++k) sum += x.at({t, k}) * weight.at({n, k});
      expected.push_back(sum);
    }
  }
  EXPECT_EQ(written(out, cache), expected);
}

INSTANTIATE_TEST_SUITE_P(Combinations, FusedQkvDTypes,
                         testing::Combine(testing::Values(DType::f32, DType::f16, DType::bf16),
                                          testing::Values(DType::f32, DType::bf16),
                                          testing::Values(DType::f32, DType::f16, DType::bf16),
                                          testing::Bool()),
                         [](const auto& test) {
                           return std::string(name(std::get<0>(test.param))) + "_" +
                                  std::string(name(std::get<1>(test.param))) + "_" +
                                  std::string(name(std::get<2>(test.param))) +
                                  (std::get<3>(test.param) ? "_bias" : "_plain");
                         });

// 1 + 2^-8 is a tie in bf16 and goes to 1; with the bias 2^-10 it is above the tie.
class FusedQkvRounding : public testing::TestWithParam<std::tuple<Arithmetic, double>> {};

TEST_P(FusedQkvRounding, BiasJoinsBeforeTheOnlyRounding) {
  const auto [arithmetic, expected] = GetParam();
  const TestCache cache(small_mla(RowFormat::uniform(DType::bf16, kRow)));
  const HostTensor x = HostTensor::filled(DType::bf16, {kTokens, 2}, 1.0);
  const HostTensor weight(DType::bf16, {kN, 2});
  for (std::int64_t n = 0; n < kN; ++n) {
    weight.view().store({n, 0}, 1.0);
    weight.view().store({n, 1}, 0x1p-8);
  }
  const HostTensor bias = HostTensor::filled(DType::bf16, {kN}, 0x1p-10);
  const HostTensor out(DType::bf16, {kTokens, kQDim});
  FusedQkvArgs args = args_for(x, {.data = weight.view()}, cache, out);
  args.bias = bias.view();
  reference::fused_qkv_matmul(args, arithmetic);
  EXPECT_EQ(written(out, cache), std::vector<double>(kTokens * kN, expected));
}

INSTANTIATE_TEST_SUITE_P(Modes, FusedQkvRounding,
                         testing::Values(std::tuple(Arithmetic::exact, 1.0 + 0x1p-7),
                                         std::tuple(Arithmetic::naive, 1.0)),
                         [](const auto& test) {
                           const bool exact = std::get<0>(test.param) == Arithmetic::exact;
                           return std::string(exact ? "exact" : "naive");
                         });

// In tf32 1 + 3 · 2^-12 becomes 1 + 2^-10, and 1 + 2^-11, a tie, 1.
TEST(FusedQkvTf32, OnlyTheNaiveEvaluationRoundsAndWhereItIsAllowed) {
  const TestCache cache(small_mla());
  const HostTensor x = HostTensor::filled(DType::f32, {kTokens, 1}, 1.0 + 3 * 0x1p-12);
  const HostTensor weight = HostTensor::filled(DType::f32, {kN, 1}, 1.0 + 0x1p-11);
  const HostTensor out(DType::f32, {kTokens, kQDim});
  FusedQkvArgs args = args_for(x, {.data = weight.view()}, cache, out);
  const auto results = [&](bool allow_tf32, Arithmetic arithmetic) {
    args.allow_tf32 = allow_tf32;
    reference::fused_qkv_matmul(args, arithmetic);
    return written(out, cache);
  };
  const double product = (1.0 + 3 * 0x1p-12) * (1.0 + 0x1p-11);  // exact in f32
  const std::vector<double> exact(kTokens * kN, product);
  EXPECT_EQ(results(true, Arithmetic::exact), exact);
  EXPECT_EQ(results(false, Arithmetic::naive), exact);
  EXPECT_EQ(results(true, Arithmetic::naive), std::vector<double>(kTokens * kN, 1.0 + 0x1p-10));
}

enum class Scaling { tensor, row, block };

std::string name_of(Scaling scaling) {
  return scaling == Scaling::tensor ? "tensor" : scaling == Scaling::row ? "row" : "block";
}

class FusedQkvFp8 : public testing::TestWithParam<std::tuple<Scaling, Scaling, bool>> {};

// Hidden 260 has a short third block; the scales are powers of two, so that everything is exact.
TEST_P(FusedQkvFp8, ScalesApplyInsideTheSum) {
  const auto [input_scaling, weight_scaling, transposed] = GetParam();
  constexpr std::int64_t kHidden = 260;
  const auto columns = [](Scaling s) { return s == Scaling::block ? std::int64_t{3} : 1; };
  const TestCache cache(small_mla());
  const HostTensor x = integers(DType::fp8_e4m3, {kTokens, kHidden}, 3);
  const HostTensor weight = integers(DType::fp8_e4m3, {kN, kHidden}, 5);
  const std::int64_t input_rows = input_scaling == Scaling::tensor ? 1 : kTokens;
  const std::int64_t weight_rows = weight_scaling == Scaling::row ? kN : 1;
  HostTensor input_scale(DType::f32, {input_rows, columns(input_scaling)});
  HostTensor weight_scale(DType::f32, {weight_rows, columns(weight_scaling)});
  TensorView input_view = input_scale.view();
  if (transposed) input_view.strides = {1, input_rows};  // M-major, as GPU libraries keep them
  const auto power = [](std::int64_t row, std::int64_t column) {
    return static_cast<double>(std::int64_t{1} << ((row % 4) + 2 * column));
  };
  for (std::int64_t i = 0; i < input_rows; ++i) {
    for (std::int64_t j = 0; j < columns(input_scaling); ++j) input_view.store({i, j}, power(i, j));
  }
  for (std::int64_t i = 0; i < weight_rows; ++i) {
    for (std::int64_t j = 0; j < columns(weight_scaling); ++j) {
      weight_scale.view().store({i, j}, power(i + 1, j));
    }
  }
  const HostTensor out(DType::f32, {kTokens, kQDim});
  FusedQkvArgs args = args_for(
      x, {.data = weight.view(), .format = WeightFormat::fp8, .scale = weight_scale.view()}, cache,
      out);
  args.input_scale = input_view;
  reference::fused_qkv_matmul(args);

  std::vector<double> expected;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t n = 0; n < kN; ++n) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < kHidden; ++k) {
        const double a = power(input_scaling == Scaling::tensor ? 0 : t,
                               input_scaling == Scaling::block ? k / 128 : 0);
        const double b = power(weight_scaling == Scaling::row ? n + 1 : 1,
                               weight_scaling == Scaling::block ? k / 128 : 0);
        sum += a * x.at({t, k}) * b * weight.at({n, k});
      }
      expected.push_back(sum);
    }
  }
  EXPECT_EQ(written(out, cache), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Scales, FusedQkvFp8,
    testing::Combine(testing::Values(Scaling::tensor, Scaling::row, Scaling::block),
                     testing::Values(Scaling::tensor, Scaling::row, Scaling::block),
                     testing::Bool()),
    [](const auto& test) {
      return "input_" + name_of(std::get<0>(test.param)) + "_weight_" +
             name_of(std::get<1>(test.param)) + (std::get<2>(test.param) ? "_m_major" : "");
    });

}  // namespace
}  // namespace quire::reference
