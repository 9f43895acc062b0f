// SPDX-License-Identifier: Apache-2.0
// Row formats of the cache, and the naive arithmetic of each dtype.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "reference/flash_attention.h"
#include "support/attention_inputs.h"
#include "support/expect_near.h"

namespace quire::reference {
namespace {

using test::CacheOptions;
using test::expect_near;
using test::FlashInputs;
using test::HostTensor;
using test::kTestLayer;

CacheOptions ragged_options() {
  return {.cache_lengths = {5, 0, 9, 3}, .new_tokens = {2, 0, 1, 6}};
}

struct FormatCase {
  const char* name;
  RowFormat format;
  double tolerance;  // of a value in [-1, 1], twice the format's rounding error
};
std::ostream& operator<<(std::ostream& stream, const FormatCase& format_case) {
  return stream << format_case.name;
}

class FlashAttentionFormatTest : public testing::TestWithParam<FormatCase> {};

TEST_P(FlashAttentionFormatTest, is_close_to_the_f32_cache) {
  CacheOptions options = ragged_options();
  const FlashInputs fine(options, 2);
  options.row_format = GetParam().format;
  const FlashInputs coarse(options, 2);
  reference::flash_attention(fine.args());
  reference::flash_attention(coarse.args());
  expect_near(coarse.out.values(), fine.out.values(), GetParam().tolerance);
  EXPECT_NE(coarse.out.bytes(), fine.out.bytes());
}

INSTANTIATE_TEST_SUITE_P(
    Formats, FlashAttentionFormatTest,
    testing::Values(FormatCase{"f16", RowFormat::uniform(DType::f16, 8), 0x1p-9},
                    FormatCase{"bf16", RowFormat::uniform(DType::bf16, 8), 0x1p-6},
                    FormatCase{"e4m3", RowFormat::uniform(DType::fp8_e4m3, 8), 0x1p-3},
                    FormatCase{"e5m2", RowFormat::uniform(DType::fp8_e5m2, 8), 0x1p-2},
                    FormatCase{"e4m3_scaled", RowFormat::scaled(DType::fp8_e4m3, 8, 8), 0x1p-3},
                    FormatCase{"e4m3_per_4", RowFormat::scaled(DType::fp8_e4m3, 8, 4), 0x1p-3},
                    FormatCase{"i8_scaled", RowFormat::scaled(DType::i8, 8, 8), 0x1p-6}),
    [](const auto& info) { return std::string(info.param.name); });

class FlashAttentionNaiveTest : public testing::TestWithParam<DType> {};

TEST_P(FlashAttentionNaiveTest, differs_from_exact_by_the_dtypes_rounding) {
  CacheOptions options = ragged_options();
  options.row_format = RowFormat::uniform(GetParam(), 8);
  const FlashInputs inputs(options, 4, GetParam());
  // f32 outputs show what the naive evaluation itself has lost.
  const HostTensor exact(DType::f32, {9, 4, 8});
  const HostTensor naive(DType::f32, {9, 4, 8});
  FlashAttentionArgs args = inputs.args();
  args.out = exact.view();
  reference::flash_attention(args);
  args.out = naive.view();
  reference::flash_attention(args, Arithmetic::naive);
  double error = 0.0;
  for (std::size_t i = 0; i < exact.values().size(); ++i) {
    error = std::max(error, std::abs(exact.values()[i] - naive.values()[i]));
  }
  const double unit = GetParam() == DType::f32   ? 0x1p-24
                      : GetParam() == DType::f16 ? 0x1p-11
                                                 : 0x1p-8;
  EXPECT_GT(error, unit / 8);
  EXPECT_LT(error, unit * 8);
}

TEST(FlashAttentionTest, naive_reads_the_cache_in_the_dtype_of_q) {
  CacheOptions options{.cache_lengths = {1}, .new_tokens = {1}};
  options.num_kv_heads = 1;
  const FlashInputs inputs(options, 1, DType::bf16);
  const KvLayerView values = inputs.cache.view().value(kTestLayer);
  values.store(0, 0, 0, 0, 1.0 + 0x1p-9);  // 1 in bf16
  values.store(0, 0, 1, 0, -1.0);
  FlashAttentionArgs args = inputs.args();
  args.scale = 0.0;  // both keys weigh 1/2
  reference::flash_attention(args);
  EXPECT_EQ(inputs.out.at({0, 0, 0}), 0x1p-10);
  reference::flash_attention(args, Arithmetic::naive);
  EXPECT_EQ(inputs.out.at({0, 0, 0}), 0.0);
}

INSTANTIATE_TEST_SUITE_P(DTypes, FlashAttentionNaiveTest,
                         testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace quire::reference
