// SPDX-License-Identifier: Apache-2.0
// store_index_keys and quantize_index_queries by numbers worked out by hand.
#include "reference/index_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "quire/element.h"
#include "reference/arithmetic.h"
#include "support/cache_builder.h"
#include "support/cache_snapshot.h"
#include "support/host_tensor.h"

namespace quire::reference {
namespace {

using test::CacheOptions;
using test::CacheSnapshot;
using test::HostTensor;
using test::TestCache;

CacheOptions index_options(std::int32_t columns, std::vector<std::uint32_t> cached = {3},
                           std::vector<std::uint32_t> added = {1}) {
  return {.cache_lengths = std::move(cached),
          .new_tokens = std::move(added),
          .row_format = RowFormat::scaled(DType::fp8_e4m3, columns, columns),
          .num_kv_heads = 1,
          .is_mla = true};
}

struct Key {
  std::vector<double> codes;
  double scale;

  bool operator==(const Key&) const = default;
};

Key key_at(const TestCache& cache, std::int64_t sequence, std::int64_t position) {
  const KvLayerView view = cache.view().key(1);
  Key key{.codes = {}, .scale = view.load_scale(sequence, 0, position, 0)};
  for (std::int32_t column = 0; column < view.width(); ++column) {
    key.codes.push_back(view.load_quantized(sequence, 0, position, column));
  }
  return key;
}

StoreIndexKeysArgs args_for(const HostTensor& x, const TestCache& cache) {
  StoreIndexKeysArgs args;
  args.x = x.view();
  args.row_offsets = cache.row_offsets();
  args.cache = cache.view();
  args.layer = 1;
  return args;
}

TEST(Hadamard, FourColumns) {
  const std::vector<double> row{1, 2, 3, 4};
  EXPECT_EQ(hadamard(row), (std::vector<double>{5, -1, -2, 0}));
}

TEST(Hadamard, TwiceIsTheRowItselfAndLengthsStay) {
  const std::vector<double> row = HostTensor::random(DType::f32, {64}, 7).values();
  const std::vector<double> turned = hadamard(row);
  const std::vector<double> back = hadamard(turned);
  double before = 0.0;
  double after = 0.0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    EXPECT_NEAR(back[i], row[i], 1e-14);
    before += row[i] * row[i];
    after += turned[i] * turned[i];
  }
  EXPECT_NEAR(before, after, 1e-12);
}

TEST(StoreIndexKeys, ScalesRoundUpToAPowerOfTwo) {
  const TestCache cache(index_options(4, {3}, {3}));
  const HostTensor x =
      HostTensor::of(DType::f32, {3, 4}, {448, -224, 1, 0, 449, -224, 2, 0, 0, 0, 0, 0});
  reference::store_index_keys(args_for(x, cache));
  EXPECT_EQ(key_at(cache, 0, 3), (Key{{448, -224, 1, 0}, 1.0}));
  EXPECT_EQ(key_at(cache, 0, 4), (Key{{224, -112, 1, 0}, 2.0}));  // 224.5 is near 224 of 16
  EXPECT_EQ(key_at(cache, 0, 5), (Key{{0, 0, 0, 0}, 0x1p-33}));
}

TEST(StoreIndexKeys, ExactScales) {
  const TestCache cache(index_options(4, {0}, {2}));
  const HostTensor x = HostTensor::of(DType::f32, {2, 4}, {112, -56, 1, 0, 0, 0, 0, 0});
  StoreIndexKeysArgs args = args_for(x, cache);
  args.scale_rounding = ScaleRounding::exact;
  reference::store_index_keys(args);
  EXPECT_EQ(key_at(cache, 0, 0), (Key{{448, -224, 4, 0}, 0.25}));
  EXPECT_EQ(key_at(cache, 0, 1), (Key{{0, 0, 0, 0}, 0.0}));
}

// Mean 2, variance 1: (-1, 1) times (2, 4) plus (10, 20) is (8, 24).
TEST(StoreIndexKeys, LayerNormTakesTheMeanOffAndAddsTheBias) {
  const TestCache cache(index_options(2));
  const HostTensor x = HostTensor::of(DType::bf16, {1, 2}, {1, 3});
  const HostTensor weight = HostTensor::of(DType::bf16, {2}, {2, 4});
  const HostTensor bias = HostTensor::of(DType::f32, {2}, {10, 20});
  StoreIndexKeysArgs args = args_for(x, cache);
  args.norm_weight = weight.view();
  args.norm_bias = bias.view();
  args.epsilon = 1e-12;
  reference::store_index_keys(args);
  EXPECT_EQ(key_at(cache, 0, 3), (Key{{128, 384}, 0x1p-4}));  // 24 / 448 lies below 2^-4
}

// Equal numbers have no deviation, not even one of double's rounding, which a small epsilon and large weights would show.
TEST(StoreIndexKeys, LayerNormOfEqualNumbersIsTheBias) {
  const TestCache cache(index_options(20));
  const HostTensor x = HostTensor::filled(DType::f16, {1, 20}, -3.0);
  const HostTensor weight = HostTensor::filled(DType::f32, {20}, 0x1p40);
  const HostTensor bias = HostTensor::filled(DType::f32, {20}, 448.0);
  StoreIndexKeysArgs args = args_for(x, cache);
  args.norm_weight = weight.view();
  args.norm_bias = bias.view();
  args.epsilon = 1e-12;
  reference::store_index_keys(args);
  EXPECT_EQ(key_at(cache, 0, 3), (Key{std::vector<double>(20, 448.0), 1.0}));
}

TEST(StoreIndexKeys, EpsilonStandsUnderTheRoot) {
  const TestCache cache(index_options(2));
  const HostTensor x = HostTensor::of(DType::f32, {1, 2}, {1, 3});
  const HostTensor weight = HostTensor::of(DType::f32, {2}, {448, 448});
  const HostTensor bias = HostTensor::of(DType::f32, {2}, {0, 0});
  StoreIndexKeysArgs args = args_for(x, cache);
  args.norm_weight = weight.view();
  args.norm_bias = bias.view();
  args.epsilon = 3.0;  // (-1, 1) / sqrt(1 + 3)
  reference::store_index_keys(args);
  EXPECT_EQ(key_at(cache, 0, 3), (Key{{-448, 448}, 0.5}));
}

// Pair 0 is turned by a right angle, pair 1 is not, in the row of position 3 alone.
class StoreIndexKeysRope : public testing::Test {
 protected:
  Key run(bool interleaved) {
    const TestCache cache(index_options(6));
    const HostTensor x = HostTensor::of(DType::f32, {1, 6}, {1, 2, 3, 4, 5, 448});
    std::vector<double> angles(12, std::nan(""));
    for (const double value : {0.0, 1.0, 1.0, 0.0}) angles.push_back(value);
    const HostTensor freqs = HostTensor::of(DType::f32, {4, 4}, angles);
    StoreIndexKeysArgs args = args_for(x, cache);
    args.freqs_cis = freqs.view();
    args.interleaved = interleaved;
    reference::store_index_keys(args);
    return key_at(cache, 0, 3);
  }
};

TEST_F(StoreIndexKeysRope, HalfSplitPairsOfTheFirstColumns) {
  EXPECT_EQ(run(false), (Key{{-3, 2, 1, 4, 5, 448}, 1.0}));
}

TEST_F(StoreIndexKeysRope, InterleavedPairsOfTheFirstColumns) {
  EXPECT_EQ(run(true), (Key{{-2, 1, 3, 4, 5, 448}, 1.0}));
}

TEST(StoreIndexKeys, HadamardComesAfterRope) {
  const TestCache cache(index_options(4));
  const HostTensor x = HostTensor::of(DType::f32, {1, 4}, {1, 2, 3, 4});
  std::vector<double> angles(6, 0.0);
  for (const double value : {0.0, 1.0}) angles.push_back(value);
  const HostTensor freqs = HostTensor::of(DType::f32, {4, 2}, angles);
  StoreIndexKeysArgs args = args_for(x, cache);
  args.freqs_cis = freqs.view();  // (1, 2) becomes (-2, 1)
  args.hadamard = true;           // (-2, 1, 3, 4) becomes (6, -4, -8, -2) / 2
  reference::store_index_keys(args);
  EXPECT_EQ(key_at(cache, 0, 3), (Key{{192, -128, -256, -64}, 0x1p-6}));
}

TEST(StoreIndexKeys, OnlyTheNewTokensRowsAndScalesAreWritten) {
  TestCache cache(index_options(8, {6, 0, 2}, {5, 0, 3}));
  cache.unassign(0, 1);  // tokens 4 to 7 of sequence 0
  const HostTensor x = HostTensor::random(DType::bf16, {8, 8}, 3);
  CacheSnapshot before(cache);
  before.allow_new_tokens(1, KvSide::key);
  reference::store_index_keys(args_for(x, cache));
  EXPECT_EQ(before.unexpected_changes(), 0);
  EXPECT_FALSE(std::isnan(key_at(cache, 0, 8).scale));
}

TEST(StoreIndexKeys, ScalesMayStandInTheRow) {
  RowFormat format;
  format.parts[0] = {.dtype = DType::fp8_e4m3,
                     .width = 4,
                     .offset_bytes = 0,
                     .scale_source = ScaleSource::in_row,
                     .granularity = 4,
                     .scale_offset_bytes = 4,
                     .scale_dtype = DType::f32};
  format.num_parts = 1;
  format.row_bytes = 8;
  CacheOptions options = index_options(4);
  options.row_format = format;
  const TestCache cache(options);
  const HostTensor x = HostTensor::of(DType::f32, {1, 4}, {896, -448, 2, 0});
  reference::store_index_keys(args_for(x, cache));
  EXPECT_EQ(key_at(cache, 0, 3), (Key{{448, -224, 1, 0}, 2.0}));
}

TEST(QuantizeIndexQueries, ScalesCarryTheGateAndTheFactor) {
  const TestCache cache(index_options(4, {3}, {1}));
  const HostTensor q =
      HostTensor::of(DType::f32, {1, 3, 4}, {896, -448, 2, 0, 448, 0, 0, 1, 0, 0, 0, 0});
  const HostTensor weights = HostTensor::of(DType::bf16, {1, 3}, {-3, 0.5, 1});
  const HostTensor out(DType::fp8_e4m3, {1, 3, 4});
  const HostTensor q_scale(DType::f32, {1, 3});
  QuantizeIndexQueriesArgs args;
  args.q = q.view();
  args.row_offsets = cache.row_offsets();
  args.cache = cache.view();
  args.weights = weights.view();
  args.factor = 0.5;
  args.out = out.view();
  args.q_scale = q_scale.view();
  reference::quantize_index_queries(args);
  EXPECT_EQ(out.values(), (std::vector<double>{448, -224, 1, 0, 448, 0, 0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(q_scale.values(), (std::vector<double>{-3, 0.25, 0x1p-34}));
  EXPECT_EQ(quantize_index_queries_fault(args), "");
  args.weights.reset();
  reference::quantize_index_queries(args);
  EXPECT_EQ(q_scale.values(), (std::vector<double>{1, 0.5, 0x1p-34}));
}

class IndexRowFault : public testing::Test {
 protected:
  std::vector<double> exact_ = HostTensor::random(DType::f32, {128}, 11).values();
  std::vector<double> codes_ = std::vector<double>(exact_.size());
  double scale_ = 0.0;

  // What an evaluation that sees `values` stores.
  void quantize(const std::vector<double>& values, ScaleRounding rounding) {
    const double amax = largest_magnitude(values);
    scale_ = round_to(DType::f32, amax / 448.0);
    if (rounding == ScaleRounding::power_of_two) {
      scale_ = std::exp2(std::ceil(std::log2(amax / 448.0)));
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      codes_[i] = round_to(DType::fp8_e4m3, values[i] / scale_);
    }
  }
  std::string fault(ScaleRounding rounding, double factor = 1.0) const {
    return index_row_fault(
        exact_,
        {.codes = codes_, .scale = scale_ * factor, .factor = factor, .rounding = rounding});
  }
};

TEST_F(IndexRowFault, AcceptsTheRowAndAnFp32RoundingOfIt) {
  for (const ScaleRounding rounding : {ScaleRounding::exact, ScaleRounding::power_of_two}) {
    quantize(exact_, rounding);
    EXPECT_EQ(fault(rounding), "");
    EXPECT_EQ(fault(rounding, -0.37), "");
    std::vector<double> bent = exact_;
    for (double& value : bent) value *= 1.0 + 0x1p-22;
    quantize(bent, rounding);
    EXPECT_EQ(fault(rounding), "");
  }
}

TEST_F(IndexRowFault, RefusesABf16RoundingACodeNextToItAndAnotherScale) {
  std::vector<double> rough = exact_;
  for (double& value : rough) value = round_to(DType::bf16, value);
  quantize(rough, ScaleRounding::power_of_two);
  EXPECT_NE(fault(ScaleRounding::power_of_two), "");

  quantize(exact_, ScaleRounding::exact);
  codes_[5] = round_to(DType::fp8_e4m3, codes_[5] * 1.125);
  EXPECT_NE(fault(ScaleRounding::exact), "");

  quantize(exact_, ScaleRounding::exact);
  scale_ *= 1.001;
  EXPECT_NE(fault(ScaleRounding::exact), "");
}

TEST_F(IndexRowFault, NearAPowerOfTwoEitherScaleIsRight) {
  exact_ = {448.0 * (1.0 + 0x1p-30), 1.0};
  codes_ = {448.0, 1.0};
  scale_ = 1.0;
  EXPECT_EQ(fault(ScaleRounding::power_of_two), "");
  codes_ = {224.0, 0.5};
  scale_ = 2.0;
  EXPECT_EQ(fault(ScaleRounding::power_of_two), "");
  codes_ = {112.0, 0.25};
  scale_ = 4.0;
  EXPECT_NE(fault(ScaleRounding::power_of_two), "");
}

}  // namespace
}  // namespace quire::reference
