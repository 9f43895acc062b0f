// SPDX-License-Identifier: Apache-2.0
// Quantized weights (act-order, GGUF) and quantized caches.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "quire/element.h"
#include "quire/paged_kv_operand.h"
#include "reference/fused_qkv_matmul.h"
#include "reference/row_codec.h"
#include "support/cache_builder.h"
#include "support/host_tensor.h"

namespace quire::reference {
namespace {

using test::CacheOptions;
using test::HostTensor;
using test::TestCache;

CacheOptions one_latent_row(const RowFormat& format) {
  return {.row_format = format, .num_layers = 1, .num_kv_heads = 1, .is_mla = true};
}

// x = [0, 1, 2, …], one row of q, one row of 7 columns for the cache.
std::vector<double> run(const Weight& weight, std::int64_t hidden) {
  const TestCache cache(one_latent_row(RowFormat::uniform(DType::f32, 7)));
  const HostTensor x(DType::f32, {1, hidden});
  for (std::int64_t k = 0; k < hidden; ++k) x.view().store({0, k}, static_cast<double>(k));
  const HostTensor out(DType::f32, {1, 1});
  reference::fused_qkv_matmul({.x = x.view(),
                               .row_offsets = cache.row_offsets(),
                               .weight = weight,
                               .cache = cache.view(),
                               .out = out.view()});
  std::vector<double> y{out.at({0, 0})};
  for (const double value : decode_row(PagedKvOperand(cache.view().key(0)), 0, 0, 0))
    y.push_back(value);
  return y;
}

// Row n has the code 8 + 1 at column 4 n and 8 (zero) elsewhere, scale n + 1.
struct OneHotInt4 {
  HostTensor data = HostTensor::filled(DType::u4, {8, 32}, 8.0);
  HostTensor scale{DType::f32, {8, 1}};

  OneHotInt4() {
    for (std::int64_t n = 0; n < 8; ++n) {
      data.view().store({n, 4 * n}, 9.0);
      scale.view().store({n, 0}, static_cast<double>(n + 1));
    }
  }
  Weight weight() const {
    return {
        .data = data.view(), .format = WeightFormat::int4, .scale = scale.view(), .group_size = 32};
  }
};

TEST(FusedQkvInt4, PicksItsColumns) {
  const OneHotInt4 one_hot;
  const std::vector<double> y = run(one_hot.weight(), 32);
  for (std::size_t n = 0; n < 8; ++n) EXPECT_EQ(y[n], static_cast<double>((n + 1) * 4 * n));
}

TEST(FusedQkvInt4, ActOrderReadsThePermutedInput) {
  const OneHotInt4 one_hot;
  const HostTensor perm(DType::i32, {32});
  for (std::int64_t k = 0; k < 32; ++k) {
    perm.view().store({k}, static_cast<double>((5 * k + 3) % 32));
  }
  Weight weight = one_hot.weight();
  weight.perm = perm.view();
  const std::vector<double> y = run(weight, 32);
  for (std::size_t n = 0; n < 8; ++n) {
    EXPECT_EQ(y[n], static_cast<double>((n + 1) * ((5 * 4 * n + 3) % 32)));
  }
}

TEST(FusedQkvInt4, ZeroPointsShiftTheWholeGroup) {
  const OneHotInt4 one_hot;
  const HostTensor zeros = HostTensor::filled(DType::u8, {8, 1}, 7.0);
  Weight weight = one_hot.weight();
  weight.zeros = zeros.view();
  const std::vector<double> y = run(weight, 32);
  // Every code is one more above its zero point: Σ x = 496 joins.
  for (std::size_t n = 0; n < 8; ++n) EXPECT_EQ(y[n], static_cast<double>((n + 1) * (4 * n + 496)));
}

TEST(FusedQkvGguf, Q8ZeroRows) {
  std::vector<std::uint8_t> bytes(8 * 34, 0);
  for (std::size_t n = 0; n < 8; ++n) {
    store_element(bytes.data() + n * 34, DType::f16, 0, 0.5);
    bytes[n * 34 + 2 + 3 * n] = static_cast<std::uint8_t>(-2);
  }
  const Weight weight{.data = TensorView::contiguous(bytes.data(), DType::u8, {8, 34}),
                      .format = WeightFormat::q8_0};
  const std::vector<double> y = run(weight, 32);
  for (std::size_t n = 0; n < 8; ++n) EXPECT_EQ(y[n], -static_cast<double>(3 * n));
}

struct CacheCase {
  std::string name;
  RowFormat format;
  std::optional<double> static_scale;
};

class FusedQkvCache : public testing::TestWithParam<CacheCase> {};

// The epilogue writes the same bytes as encoding the unrounded projection would.
TEST_P(FusedQkvCache, QuantizesTheUnroundedValues) {
  const CacheCase& c = GetParam();
  CacheOptions options = one_latent_row(c.format);
  options.cache_lengths = {6, 3};
  options.new_tokens = {3, 1};
  options.static_scale = c.static_scale;
  const TestCache fused(options);
  const TestCache encoded(options);
  const std::int64_t width = c.format.width();
  const HostTensor x = HostTensor::random(DType::bf16, {4, 3}, 1, 2.0);
  const HostTensor weight = HostTensor::random(DType::bf16, {1 + width, 3}, 2, 300.0);
  const HostTensor out(DType::bf16, {4, 1});
  reference::fused_qkv_matmul({.x = x.view(),
                               .row_offsets = fused.row_offsets(),
                               .weight = {.data = weight.view()},
                               .cache = fused.view(),
                               .out = out.view()});
  for (std::int64_t t = 0; t < 4; ++t) {
    std::vector<double> row;
    for (std::int64_t n = 1; n <= width; ++n) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < 3; ++k) sum += x.at({t, k}) * weight.at({n, k});
      row.push_back(sum);
    }
    encode_row(PagedKvOperand(encoded.view().key(0)), t < 3 ? 0 : 1, 0, t < 3 ? 6 + t : 3, row);
  }
  EXPECT_EQ(fused.block_bytes(), encoded.block_bytes());
  EXPECT_EQ(fused.scale_bytes(), encoded.scale_bytes());
}

INSTANTIATE_TEST_SUITE_P(
    Formats, FusedQkvCache,
    testing::Values(CacheCase{"fp8_without_scales", RowFormat::uniform(DType::fp8_e4m3, 16), {}},
                    CacheCase{"e5m2_without_scales", RowFormat::uniform(DType::fp8_e5m2, 16), {}},
                    CacheCase{"fp8_per_row", RowFormat::scaled(DType::fp8_e4m3, 16, 16), {}},
                    CacheCase{"fp8_per_4", RowFormat::scaled(DType::fp8_e4m3, 16, 4), {}},
                    CacheCase{
                        "fp8_per_5_f16", RowFormat::scaled(DType::fp8_e4m3, 16, 5, DType::f16), {}},
                    CacheCase{"fp8_static", RowFormat::scaled(DType::fp8_e4m3, 16, 16), 0.75},
                    CacheCase{"i8_per_row", RowFormat::scaled(DType::i8, 16, 16), {}},
                    CacheCase{"i8_static", RowFormat::scaled(DType::i8, 16, 16), 4.0},
                    CacheCase{"mla_640", RowFormat::mla_fp8_token(), {}},
                    CacheCase{"mla_656", RowFormat::mla_fp8_block(), {}}),
    [](const auto& test) { return test.param.name; });

TEST(FusedQkvCache, KeysAndValuesHaveTheirOwnScales) {
  const TestCache cache({.row_format = RowFormat::scaled(DType::fp8_e4m3, 4, 4)});
  const HostTensor x = HostTensor::filled(DType::f32, {1, 1}, 1.0);
  // q_dim 1, two heads of K (scales 1 and 2), two heads of V (scales 4 and 8).
  const HostTensor weight(DType::f32, {17, 1});
  for (std::int64_t n = 0; n < 17; ++n) {
    weight.view().store({n, 0},
                        n == 0 ? 5.0 : 448.0 * std::ldexp(1.0, static_cast<int>(n - 1) / 4));
  }
  const HostTensor out(DType::f32, {1, 1});
  reference::fused_qkv_matmul({.x = x.view(),
                               .row_offsets = cache.row_offsets(),
                               .weight = {.data = weight.view()},
                               .cache = cache.view(),
                               .layer = 1,
                               .out = out.view()});
  EXPECT_EQ(out.at({0, 0}), 5.0);
  EXPECT_EQ(cache.view().key(1).load_scale(0, 0, 0, 0), 1.0);
  EXPECT_EQ(cache.view().key(1).load_scale(0, 1, 0, 0), 2.0);
  EXPECT_EQ(cache.view().value(1).load_scale(0, 0, 0, 0), 4.0);
  EXPECT_EQ(cache.view().value(1).load_scale(0, 1, 0, 3), 8.0);
  EXPECT_TRUE(std::isnan(cache.view().key(0).load_scale(0, 0, 0, 0)));
}

}  // namespace
}  // namespace quire::reference
