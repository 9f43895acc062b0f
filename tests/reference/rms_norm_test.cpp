// SPDX-License-Identifier: Apache-2.0
#include "reference/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "quire/element.h"
#include "quire/paged_kv_operand.h"
#include "reference/ragged.h"
#include "reference/row_codec.h"
#include "support/cache_builder.h"
#include "support/cache_snapshot.h"
#include "support/host_tensor.h"

namespace quire::reference {
namespace {

using test::CacheOptions;
using test::CacheSnapshot;
using test::HostTensor;
using test::TestCache;

// Rows of 2 columns, 3 and 4 times a power of two: mean square 12.5, root √12.5.
constexpr double kRoot = 3.5355339059327378;

CacheOptions two_columns(DType dtype = DType::f32) {
  return {.row_format = RowFormat::uniform(dtype, 2), .num_layers = 2};
}

void put(const TestCache& cache, std::int64_t head, const std::vector<double>& row) {
  encode_row(PagedKvOperand(cache.view().key(0)), 0, head, 0, row);
}

std::vector<double> get(const TestCache& cache, std::int64_t head) {
  return decode_row(PagedKvOperand(cache.view().key(0)), 0, head, 0);
}

RmsNormArgs args_for(const TestCache& cache, const HostTensor& gamma) {
  return {.cache = cache.view(),
          .row_offsets = cache.row_offsets(),
          .gamma = gamma.view(),
          .epsilon = 0.0};
}

TEST(RmsNorm, NormalizesEachHead) {
  const TestCache cache(two_columns());
  put(cache, 0, {3, 4});
  put(cache, 1, {-6, 8});
  const HostTensor gamma = HostTensor::of(DType::f32, {2}, {1, 2});
  reference::rms_norm(args_for(cache, gamma));
  EXPECT_FLOAT_EQ(static_cast<float>(get(cache, 0)[0]), static_cast<float>(3 / kRoot));
  EXPECT_FLOAT_EQ(static_cast<float>(get(cache, 0)[1]), static_cast<float>(8 / kRoot));
  EXPECT_FLOAT_EQ(static_cast<float>(get(cache, 1)[0]), static_cast<float>(-3 / kRoot));
  EXPECT_FLOAT_EQ(static_cast<float>(get(cache, 1)[1]), static_cast<float>(8 / kRoot));
}

TEST(RmsNorm, NormalizesTheWholeToken) {
  const TestCache cache(two_columns());
  put(cache, 0, {1, 3});
  put(cache, 1, {5, 1});  // mean square 9
  const HostTensor gamma = HostTensor::of(DType::f32, {4}, {1, 2, 3, 4});
  RmsNormArgs args = args_for(cache, gamma);
  args.per_head = false;
  reference::rms_norm(args);
  EXPECT_EQ(get(cache, 0), (std::vector<double>{round_to(DType::f32, 1.0 / 3.0), 2}));
  EXPECT_EQ(get(cache, 1), (std::vector<double>{5, round_to(DType::f32, 4.0 / 3.0)}));
}

TEST(RmsNorm, WeightOffsetJoinsGamma) {
  const TestCache cache(two_columns());
  put(cache, 0, {2, 2});
  put(cache, 1, {2, 2});
  const HostTensor gamma = HostTensor::of(DType::f32, {2}, {0.5, -1});
  RmsNormArgs args = args_for(cache, gamma);
  args.weight_offset = 1.0;
  reference::rms_norm(args);
  EXPECT_EQ(get(cache, 1), (std::vector<double>{1.5, 0}));
}

TEST(RmsNorm, EpsilonStandsUnderTheRoot) {
  const TestCache cache(two_columns());
  put(cache, 0, {0, 0});
  put(cache, 1, {1, 1});
  const HostTensor gamma = HostTensor::filled(DType::f32, {2}, 1.0);
  RmsNormArgs args = args_for(cache, gamma);
  args.epsilon = 3.0;
  reference::rms_norm(args);
  EXPECT_EQ(get(cache, 0), (std::vector<double>{0, 0}));
  EXPECT_EQ(get(cache, 1), (std::vector<double>{0.5, 0.5}));
}

struct RoundingCase {
  std::string name;
  bool multiply_before_cast;
  DType gamma_dtype;
  DType cache_dtype;
};

class RmsNormRounding : public testing::TestWithParam<RoundingCase> {};

TEST_P(RmsNormRounding, RoundsWhereItIsTold) {
  const RoundingCase& c = GetParam();
  const TestCache cache(two_columns(c.cache_dtype));
  put(cache, 0, {3, 4});
  put(cache, 1, {3, 4});
  const HostTensor gamma = HostTensor::of(c.gamma_dtype, {2}, {1.3, 2.7});
  RmsNormArgs args = args_for(cache, gamma);
  args.multiply_before_cast = c.multiply_before_cast;
  reference::rms_norm(args);
  std::vector<double> expected;
  for (std::int64_t d = 0; d < 2; ++d) {
    double y = static_cast<double>(3 + d) / std::sqrt(12.5);
    if (!c.multiply_before_cast) y = round_to(c.gamma_dtype, y);
    expected.push_back(round_to(c.cache_dtype, y * gamma.at({d})));
  }
  EXPECT_EQ(get(cache, 0), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Modes, RmsNormRounding,
    testing::Values(RoundingCase{"bf16_once", true, DType::bf16, DType::bf16},
                    RoundingCase{"bf16_twice", false, DType::bf16, DType::bf16},
                    RoundingCase{"f16_once", true, DType::f16, DType::f16},
                    RoundingCase{"f16_twice", false, DType::f16, DType::f16},
                    RoundingCase{"bf16_gamma_f32_cache", false, DType::bf16, DType::f32},
                    RoundingCase{"bf16_gamma_fp8_cache", false, DType::bf16, DType::fp8_e4m3}),
    [](const auto& test) { return test.param.name; });

TEST(RmsNormRounding, BothModesDifferWhereTheyShould) {
  // 3 / √12.5 = 0.848528… is 0.84765625 in bf16; times 1.296875 the two products round apart.
  const HostTensor gamma = HostTensor::of(DType::bf16, {2}, {1.296875, 1});
  std::vector<double> results;
  for (const bool before_cast : {true, false}) {
    const TestCache cache(two_columns(DType::f32));
    put(cache, 0, {3, 4});
    put(cache, 1, {3, 4});
    RmsNormArgs args = args_for(cache, gamma);
    args.multiply_before_cast = before_cast;
    reference::rms_norm(args);
    results.push_back(get(cache, 0)[0]);
  }
  EXPECT_NEAR(results[0], 0.84852813742 * 1.296875, 1e-7);
  EXPECT_EQ(results[1], 0.84765625 * 1.296875);
}

TEST(RmsNorm, ColumnsPastGammaAreLeftAlone) {
  TestCache cache({.cache_lengths = {3},
                   .new_tokens = {3},
                   .row_format = RowFormat::uniform(DType::bf16, 576),
                   .num_kv_heads = 1,
                   .is_mla = true});
  cache.fill_new(1, 5);
  const HostTensor gamma = HostTensor::filled(DType::bf16, {512}, 1.0);
  RmsNormArgs args = args_for(cache, gamma);
  args.layer = 1;
  CacheSnapshot before(cache);
  before.allow_new_tokens(1, KvSide::key, 0, 2 * 512);
  reference::rms_norm(args);
  EXPECT_EQ(before.unexpected_changes(), 0);
  for (std::int64_t token = 3; token < 6; ++token) {
    double squares = 0.0;
    const std::vector<double> row = decode_row(PagedKvOperand(cache.view().key(1)), 0, 0, token);
    for (std::size_t d = 0; d < 512; ++d) squares += row[d] * row[d];
    EXPECT_NEAR(squares / 512, 1.0, 0.01) << token;
  }
}

class RmsNormSide : public testing::TestWithParam<KvSide> {};

TEST_P(RmsNormSide, OnlyTheNewTokensOfItsSideAndLayerChange) {
  TestCache cache({.cache_lengths = {3, 5, 2}, .new_tokens = {2, 0, 4}, .num_layers = 3});
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    cache.fill_cached(layer, 1);
    cache.fill_new(layer, 2);
  }
  const HostTensor gamma = HostTensor::filled(DType::f32, {8}, 2.0);
  RmsNormArgs args = args_for(cache, gamma);
  args.layer = 2;
  args.side = GetParam();
  CacheSnapshot before(cache);
  before.allow_new_tokens(2, GetParam());
  reference::rms_norm(args);
  EXPECT_EQ(before.unexpected_changes(), 0);
  EXPECT_GT(before.changes(), 0);
  const KvLayerView view = GetParam() == KvSide::key ? cache.view().key(2) : cache.view().value(2);
  for (const Token& token : tokens_of(cache.row_offsets(), cache.view())) {
    for (std::int64_t head = 0; head < 2; ++head) {
      double squares = 0.0;
      for (const double y : decode_row(PagedKvOperand(view), token.sequence, head, token.position))
        squares += y * y;
      EXPECT_NEAR(squares / 8, 4.0, 1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sides, RmsNormSide, testing::Values(KvSide::key, KvSide::value),
                         [](const auto& test) {
                           return std::string(test.param == KvSide::key ? "key" : "value");
                         });

TEST(RmsNorm, UnassignedPagesAreLeftOut) {
  TestCache cache({.cache_lengths = {3}, .new_tokens = {2}});
  cache.fill_new(0, 1);
  cache.unassign(0, 1);
  const HostTensor gamma = HostTensor::filled(DType::f32, {8}, 1.0);
  CacheSnapshot before(cache);
  before.allow_new_tokens(0, KvSide::key);
  reference::rms_norm(args_for(cache, gamma));
  EXPECT_EQ(before.unexpected_changes(), 0);
  EXPECT_GT(before.changes(), 0);
}

}  // namespace
}  // namespace quire::reference
