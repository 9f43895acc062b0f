// SPDX-License-Identifier: Apache-2.0
#include "reference/row_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "quire/element.h"
#include "quire/paged_kv_operand.h"
#include "support/cache_builder.h"
#include "support/host_tensor.h"

namespace quire::reference {
namespace {

using test::CacheOptions;
using test::TestCache;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// One sequence, one head, K only, one row at position 0.
CacheOptions one_row(const RowFormat& format) {
  return {.row_format = format, .num_layers = 1, .num_kv_heads = 1, .is_mla = true};
}

std::vector<double> random_row(std::int32_t width, std::uint64_t seed, double amplitude) {
  std::vector<double> row(static_cast<std::size_t>(width));
  for (double& value : row) value = amplitude * test::next_uniform(seed);
  return row;
}

std::vector<double> codes_of(const KvLayerView& view) {
  std::vector<double> codes;
  for (std::int32_t d = 0; d < view.width(); ++d) codes.push_back(view.load_quantized(0, 0, 0, d));
  return codes;
}

class UnscaledRow : public testing::TestWithParam<DType> {};

TEST_P(UnscaledRow, RoundsEachValueOnce) {
  const TestCache cache(one_row(RowFormat::uniform(GetParam(), 32)));
  const KvLayerView view = cache.view().key(0);
  const std::vector<double> row = random_row(32, 3, 1000.0);
  encode_row(PagedKvOperand(view), 0, 0, 0, row);
  const std::vector<double> stored = decode_row(PagedKvOperand(view), 0, 0, 0);
  for (std::size_t d = 0; d < row.size(); ++d) EXPECT_EQ(stored[d], round_to(GetParam(), row[d]));
}

INSTANTIATE_TEST_SUITE_P(DTypes, UnscaledRow,
                         testing::Values(DType::f32, DType::f16, DType::bf16, DType::fp8_e4m3,
                                         DType::fp8_e5m2, DType::i8),
                         [](const auto& test) { return std::string(name(test.param)); });

using ScaledParam = std::tuple<DType, std::int32_t, DType>;  // dtype, granularity, scale dtype

class ScaledRow : public testing::TestWithParam<ScaledParam> {};

// Eighteen columns, so that some granularities leave a short last granule.
TEST_P(ScaledRow, EachGranuleUsesItsOwnRoundedScale) {
  const auto [dtype, granularity, scale_dtype] = GetParam();
  const TestCache cache(one_row(RowFormat::scaled(dtype, 18, granularity, scale_dtype)));
  const KvLayerView view = cache.view().key(0);
  const std::vector<double> row = random_row(18, 5, 30.0);
  encode_row(PagedKvOperand(view), 0, 0, 0, row);
  for (std::int32_t first = 0; first < 18; first += granularity) {
    const std::int32_t last = std::min(first + granularity, 18);
    double amax = 0.0;
    for (std::int32_t d = first; d < last; ++d) {
      amax = std::max(amax, std::abs(row[static_cast<std::size_t>(d)]));
    }
    const double scale = round_to(scale_dtype, amax / max_finite(dtype));
    for (std::int32_t d = first; d < last; ++d) {
      EXPECT_EQ(view.load_scale(0, 0, 0, d), scale) << d;
      const double code = round_to(dtype, row[static_cast<std::size_t>(d)] / scale);
      EXPECT_EQ(view.load_quantized(0, 0, 0, d), code) << d;
      EXPECT_EQ(view.load(0, 0, 0, d), code * scale) << d;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, ScaledRow,
                         testing::Combine(testing::Values(DType::fp8_e4m3, DType::fp8_e5m2,
                                                          DType::i8),
                                          testing::Values(18, 9, 4, 1),
                                          testing::Values(DType::f32, DType::f16, DType::bf16)),
                         [](const auto& test) {
                           return std::string(name(std::get<0>(test.param))) + "_per_" +
                                  std::to_string(std::get<1>(test.param)) + "_" +
                                  std::string(name(std::get<2>(test.param)));
                         });

TEST(RowCodec, Int8TiesGoToEven) {
  const TestCache cache(one_row(RowFormat::scaled(DType::i8, 6, 6)));
  const KvLayerView view = cache.view().key(0);
  encode_row(PagedKvOperand(view), 0, 0, 0, std::vector<double>{1, -2, 127, -254, 3, 5});
  EXPECT_EQ(view.load_scale(0, 0, 0, 0), 2.0);
  EXPECT_EQ(codes_of(view), (std::vector<double>{0, -1, 64, -127, 2, 2}));
}

std::vector<double> bytes_of(const RowAddress& address, int count) {
  std::vector<double> bytes;
  for (int i = 0; i < count; ++i) bytes.push_back(load_element(address.row, DType::u8, i));
  return bytes;
}

RowAddress first_row(const KvLayerView& view) {
  return KvOperandRef(PagedKvOperand(view)).row(0, 0, 0);
}

TEST(RowCodec, Int4PutsTheEvenColumnLowAndItsScaleBehindTheCodes) {
  const TestCache cache(one_row(RowFormat::int4(34)));
  const KvLayerView view = cache.view().key(0);
  std::vector<double> row(34);
  row[0] = 14.0;   // amax: code 7 of scale 2
  row[1] = -14.0;  // -7, and never -8
  row[2] = 3.0;    // 1.5: to even
  row[3] = 5.0;    // 2.5: to even
  row[4] = kNaN;
  row[32] = -1.0;  // a group of two columns
  encode_row(PagedKvOperand(view), 0, 0, 0, row);
  EXPECT_EQ(view.load_scale(0, 0, 0, 31), 2.0);
  EXPECT_EQ(view.load_scale(0, 0, 0, 33), round_to(DType::f16, 1.0 / 7.0));
  const std::vector<double> codes = codes_of(view);
  EXPECT_EQ(std::vector<double>(codes.begin(), codes.begin() + 5),
            (std::vector<double>{7, -7, 2, 2, 0}));
  EXPECT_EQ(codes[32], -7.0);
  EXPECT_EQ(bytes_of(first_row(view), 3), (std::vector<double>{0x97, 0x22, 0x00}));
  EXPECT_EQ(load_element(first_row(view).row + 17, DType::f16, 0), 2.0);
}

TEST(RowCodec, Int4WithZerosSpansTheRangeOfAGroup) {
  const TestCache cache(one_row(RowFormat::int4(66, 32, DType::f32, true)));
  const KvLayerView view = cache.view().key(0);
  std::vector<double> row(66, -3.0);
  row[0] = 27.0;                                       // code 15 of scale 2 from zero -3
  row[1] = -2.0;                                       // 0.5: to even
  row[2] = 0.0;                                        // 1.5: to even
  row[3] = kNaN;                                       // code 0
  for (std::size_t d = 32; d < 64; ++d) row[d] = 5.0;  // no range: all of them the zero
  row[64] = row[65] = kNaN;
  encode_row(PagedKvOperand(view), 0, 0, 0, row);
  const std::vector<double> codes = codes_of(view);
  EXPECT_EQ(std::vector<double>(codes.begin(), codes.begin() + 5),
            (std::vector<double>{15, 0, 2, 0, 0}));
  EXPECT_EQ(bytes_of(first_row(view), 2), (std::vector<double>{0x0f, 0x02}));
  const std::vector<double> values = decode_row(PagedKvOperand(view), 0, 0, 0);
  EXPECT_EQ(std::vector<double>(values.begin(), values.begin() + 5),
            (std::vector<double>{27, -3, 1, -3, -3}));
  for (std::size_t d = 32; d < 64; ++d) EXPECT_EQ(values[d], 5.0);
  EXPECT_EQ(values[64], 0.0);
  // scale, zero, scale, zero, …
  const std::byte* numbers = first_row(view).row + 33;
  const double expected[] = {2.0, -3.0, 0.0, 5.0, 0.0, 0.0};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(load_element(numbers, DType::f32, i), expected[i]) << i;
}

// Values are counted from the zero as it is stored: those below it are code 0.
TEST(RowCodec, Int4QuantizesFromTheStoredZero) {
  const TestCache cache(one_row(RowFormat::int4(32, 32, DType::bf16, true)));
  const KvLayerView view = cache.view().key(0);
  std::vector<double> row(32, 257.0);
  row[0] = 289.0;
  row[2] = 258.0;
  encode_row(PagedKvOperand(view), 0, 0, 0, row);
  EXPECT_EQ(view.layout().load_zero(first_row(view), 5), 256.0);
  const double scale = round_to(DType::bf16, 32.0 / 15.0);
  EXPECT_EQ(view.load_scale(0, 0, 0, 5), scale);
  EXPECT_EQ(view.load_quantized(0, 0, 0, 2), 1.0);   // 2 / 2.14, from 257 it were 0
  EXPECT_EQ(view.load_quantized(0, 0, 0, 1), 0.0);   // 1 / 2.13
  EXPECT_EQ(view.load_quantized(0, 0, 0, 0), 15.0);  // 33 / 2.13 = 15.5
  EXPECT_EQ(view.load(0, 0, 0, 0), 15.0 * scale + 256.0);
}

TEST(RowCodec, DividesByTheScaleAsItIsStored) {
  // 300 / 448 is 0.66964…, as bf16 0.66796875: 182 is 272.47 of those (288), not 271.79 (256).
  const TestCache cache(one_row(RowFormat::scaled(DType::fp8_e4m3, 2, 2, DType::bf16)));
  const KvLayerView view = cache.view().key(0);
  encode_row(PagedKvOperand(view), 0, 0, 0, std::vector<double>{300, 182});
  EXPECT_EQ(view.load_scale(0, 0, 0, 0), 0.66796875);
  EXPECT_EQ(codes_of(view), (std::vector<double>{448, 288}));
}

TEST(RowCodec, ZeroGranuleHasScaleZeroAndZeros) {
  const TestCache cache(one_row(RowFormat::scaled(DType::fp8_e4m3, 4, 2)));
  const KvLayerView view = cache.view().key(0);
  encode_row(PagedKvOperand(view), 0, 0, 0, std::vector<double>{0, 0, 448, -224});
  EXPECT_EQ(view.load_scale(0, 0, 0, 0), 0.0);
  EXPECT_EQ(view.load_scale(0, 0, 0, 2), 1.0);
  EXPECT_EQ(codes_of(view), (std::vector<double>{0, 0, 448, -224}));
}

TEST(RowCodec, ScaleThatUnderflowsStoresZeros) {
  const TestCache cache(one_row(RowFormat::scaled(DType::fp8_e4m3, 2, 2, DType::f16)));
  const KvLayerView view = cache.view().key(0);
  encode_row(PagedKvOperand(view), 0, 0, 0, std::vector<double>{1e-6, -1e-6});
  EXPECT_EQ(view.load_scale(0, 0, 0, 0), 0.0);
  EXPECT_EQ(decode_row(PagedKvOperand(view), 0, 0, 0), (std::vector<double>{0, 0}));
}

TEST(RowCodec, NanStaysNanAndLeavesTheOthersAlone) {
  const TestCache cache(one_row(RowFormat::scaled(DType::fp8_e4m3, 4, 2)));
  const KvLayerView view = cache.view().key(0);
  encode_row(PagedKvOperand(view), 0, 0, 0, std::vector<double>{kNaN, 448, kNaN, 0});
  const std::vector<double> row = decode_row(PagedKvOperand(view), 0, 0, 0);
  EXPECT_TRUE(std::isnan(row[0]));
  EXPECT_EQ(row[1], 448.0);
  EXPECT_TRUE(std::isnan(row[2]));
  EXPECT_EQ(row[3], 0.0);
}

TEST(RowCodec, StaticScaleIsReadAndNeverWritten) {
  CacheOptions options = one_row(RowFormat::scaled(DType::fp8_e4m3, 4, 4));
  options.static_scale = 0.5;
  const TestCache cache(options);
  const std::vector<std::byte> scale = cache.scale_bytes();
  const KvLayerView view = cache.view().key(0);
  encode_row(PagedKvOperand(view), 0, 0, 0, std::vector<double>{1, -2, 224, 1000});
  EXPECT_EQ(codes_of(view), (std::vector<double>{2, -4, 448, 448}));
  EXPECT_EQ(decode_row(PagedKvOperand(view), 0, 0, 0), (std::vector<double>{1, -2, 224, 224}));
  EXPECT_EQ(cache.scale_bytes(), scale);
}

TEST(RowCodec, Fp8WithoutScalesSaturates) {
  const TestCache cache(one_row(RowFormat::uniform(DType::fp8_e4m3, 4)));
  const KvLayerView view = cache.view().key(0);
  encode_row(PagedKvOperand(view), 0, 0, 0, std::vector<double>{449, -1e30, 1.0625, 0});
  EXPECT_EQ(decode_row(PagedKvOperand(view), 0, 0, 0), (std::vector<double>{448, -448, 1, 0}));
}

TEST(RowCodec, TokenScaledMlaRowTakesItsScaleFromTheLatent) {
  const TestCache cache(one_row(RowFormat::mla_fp8_token()));
  const KvLayerView view = cache.view().key(0);
  std::vector<double> row(576, 1.0);
  row[7] = -224.0;  // scale 0.5
  row[512] = 3000;  // would be amax if the rope part counted
  encode_row(PagedKvOperand(view), 0, 0, 0, row);
  EXPECT_EQ(view.load_scale(0, 0, 0, 0), 0.5);
  EXPECT_EQ(view.load_scale(0, 0, 0, 575), 0.5);
  EXPECT_EQ(view.load_quantized(0, 0, 0, 0), 2.0);
  EXPECT_EQ(view.load_quantized(0, 0, 0, 512), round_to(DType::bf16, 6000.0));
  EXPECT_EQ(view.load_quantized(0, 0, 0, 575), 2.0);
  // The bf16 part starts at byte 512 of the 640.
  const std::byte* bytes = view.row(0, 0, 0);
  EXPECT_EQ(load_element(bytes + 512, DType::bf16, 63), 2.0);
}

TEST(RowCodec, TokenScaledMlaRowKeepsItsRopeUnderAZeroLatent) {
  const TestCache cache(one_row(RowFormat::mla_fp8_token()));
  const KvLayerView view = cache.view().key(0);
  std::vector<double> row(576, 0.0);
  row[512] = 3.0;
  row[575] = -0.25;
  encode_row(PagedKvOperand(view), 0, 0, 0, row);
  EXPECT_EQ(view.load_scale(0, 0, 0, 0), 1.0);
  EXPECT_EQ(decode_row(PagedKvOperand(view), 0, 0, 0), row);
}

TEST(RowCodec, BlockScaledMlaRowHoldsFourScalesBetweenItsParts) {
  const TestCache cache(one_row(RowFormat::mla_fp8_block()));
  const KvLayerView view = cache.view().key(0);
  std::vector<double> row(576, 0.0);
  for (std::size_t block = 0; block < 4; ++block) {
    row[128 * block + 5] = 448.0 * std::ldexp(1.0, static_cast<int>(block));
  }
  row[512] = 0.3;
  row[575] = -1e5;
  encode_row(PagedKvOperand(view), 0, 0, 0, row);
  const std::byte* bytes = view.row(0, 0, 0);
  for (std::int64_t block = 0; block < 4; ++block) {
    EXPECT_EQ(load_element(bytes + 512, DType::f32, block),
              std::ldexp(1.0, static_cast<int>(block)));
    EXPECT_EQ(load_element(bytes, DType::fp8_e4m3, 128 * block + 5), 448.0);
  }
  EXPECT_EQ(load_element(bytes + 528, DType::bf16, 0), round_to(DType::bf16, 0.3));
  EXPECT_EQ(load_element(bytes + 528, DType::bf16, 63), round_to(DType::bf16, -1e5));
}

TEST(RowCodec, UnassignedPageDropsRowAndScales) {
  TestCache cache(one_row(RowFormat::scaled(DType::fp8_e4m3, 8, 4)));
  cache.unassign(0, 0);
  const std::vector<std::byte> blocks = cache.block_bytes();
  const std::vector<std::byte> scales = cache.scale_bytes();
  encode_row(PagedKvOperand(cache.view().key(0)), 0, 0, 0, std::vector<double>(8, 1.0));
  EXPECT_EQ(cache.block_bytes(), blocks);
  EXPECT_EQ(cache.scale_bytes(), scales);
  EXPECT_EQ(decode_row(PagedKvOperand(cache.view().key(0)), 0, 0, 0), std::vector<double>(8, 0.0));
}

TEST(RowCodec, ScalesMayHaveTheirOwnPages) {
  CacheOptions options = one_row(RowFormat::scaled(DType::i8, 4, 2));
  options.cache_lengths = {9};
  options.own_scale_pages = true;
  const TestCache cache(options);
  const KvLayerView view = cache.view().key(0);
  ASSERT_NE(view.page_table[2], view.scales.page_table[2]);
  for (std::int64_t token = 0; token < 10; ++token) {
    const auto value = static_cast<double>(token);
    encode_row(PagedKvOperand(view), 0, 0, token, std::vector<double>{value, 0, 127, 127 * value});
  }
  for (std::int64_t token = 0; token < 10; ++token) {
    const auto value = static_cast<double>(token);
    EXPECT_EQ(view.load_scale(0, 0, token, 3), std::max(1.0, value));
    EXPECT_EQ(view.load(0, 0, token, 3), 127 * value);
  }
}

}  // namespace
}  // namespace quire::reference
