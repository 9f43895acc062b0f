// SPDX-License-Identifier: Apache-2.0
#include "reference/mla_decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "quire/element.h"
#include "reference/mla_prefill.h"
#include "reference/mla_rows.h"
#include "support/attention_inputs.h"
#include "support/expect_near.h"

namespace quire::reference {
namespace {

using test::CacheOptions;
using test::expect_near;
using test::HostTensor;
using test::kTestLayer;
using test::largest_magnitude;
using test::MlaInputs;
using test::MlaShape;

struct TokensCase {
  const char* name;
  std::vector<std::uint32_t> new_tokens;
  Mask mask;
};
std::ostream& operator<<(std::ostream& stream, const TokensCase& tokens) {
  return stream << tokens.name;
}

class MlaDecodeTokensTest : public testing::TestWithParam<TokensCase> {};

TEST_P(MlaDecodeTokensTest, equals_mla_prefill) {
  const CacheOptions options{.cache_lengths = {5, 0, 9}, .new_tokens = GetParam().new_tokens};
  MlaInputs prefill(options, {});
  MlaPrefillArgs prefill_args = prefill.prefill_args();
  prefill_args.mask = GetParam().mask;
  reference::mla_prefill(prefill_args);

  const MlaInputs decode(options, {});
  MlaDecodeArgs decode_args = decode.decode_args();
  decode_args.mask = GetParam().mask;
  reference::mla_decode(decode_args);
  expect_near(decode.out.values(), prefill.out.values(), 1e-6);
  expect_near(decode.lse.values(), prefill.lse.values(), 1e-6);
  EXPECT_EQ(decode.cache.block_bytes(), prefill.cache.block_bytes());
}

INSTANTIATE_TEST_SUITE_P(
    NewTokens, MlaDecodeTokensTest,
    testing::Values(TokensCase{"one_each", {1, 1, 1}, Mask::causal()},
                    TokensCase{"one_alone", {0, 1, 0}, Mask::causal()},
                    TokensCase{"mixed", {2, 3, 1}, Mask::causal()},
                    TokensCase{"eight", {8, 8, 8}, Mask::causal()},
                    TokensCase{"full", {3, 2, 4}, Mask::full()},
                    TokensCase{"window", {4, 1, 8}, Mask::causal() & Mask::sliding_window(3)}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(MlaDecodeTest, does_not_change_q) {
  const MlaInputs inputs({.cache_lengths = {5}, .new_tokens = {2}}, {});
  const HostTensor before = inputs.q;
  reference::mla_decode(inputs.decode_args());
  EXPECT_EQ(inputs.q.bytes(), before.bytes());
}

TEST(MlaDecodeTest, a_sink_stands_in_the_denominator) {
  const CacheOptions options{.cache_lengths = {5}, .new_tokens = {2}};
  const HostTensor sinks = HostTensor::of(DType::f32, {2}, {1.0, -2.0});
  MlaInputs prefill(options, {});
  MlaPrefillArgs prefill_args = prefill.prefill_args();
  prefill_args.sinks = sinks.view();
  reference::mla_prefill(prefill_args);
  const MlaInputs decode(options, {});
  MlaDecodeArgs decode_args = decode.decode_args();
  decode_args.sinks = sinks.view();
  reference::mla_decode(decode_args);
  expect_near(decode.out.values(), prefill.out.values(), 1e-6);
  expect_near(decode.lse.values(), prefill.lse.values(), 1e-6);
}

// q' and raw by hand around the absorbed form.
TEST(MlaDecodeTest, absorbed_form_is_the_middle_of_the_whole) {
  const CacheOptions options{.cache_lengths = {5}, .new_tokens = {2}};
  const MlaInputs whole(options, {});
  const MlaDecodeArgs whole_args = whole.decode_args();
  reference::mla_decode(whole_args);

  const HostTensor q(DType::f32, {2, 2, 8});
  const HostTensor raw(DType::f32, {2, 2, 6});
  for (std::int64_t token = 0; token < 2; ++token) {
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t l = 0; l < 6; ++l) {
        double sum = 0.0;
        for (std::int64_t n = 0; n < 4; ++n) {
          sum += whole.q.at({token, head, n}) * whole.kv_b_proj.at({head * 7 + n, l});
        }
        q.view().store({token, head, l}, sum);
      }
      for (std::int64_t r = 0; r < 2; ++r) {
        q.view().store({token, head, 6 + r}, whole.q.at({token, head, 4 + r}));
      }
    }
  }
  const MlaInputs absorbed(options, {});
  MlaDecodeArgs args = absorbed.decode_args();
  args.w_uk.reset();
  args.w_uv.reset();
  args.q = q.view();
  args.out = raw.view();
  reference::mla_decode(args);

  for (std::int64_t token = 0; token < 2; ++token) {
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t v = 0; v < 3; ++v) {
        double sum = 0.0;
        for (std::int64_t l = 0; l < 6; ++l) {
          sum += raw.at({token, head, l}) * whole.kv_b_proj.at({head * 7 + 4 + v, l});
        }
        EXPECT_NEAR(whole.out.at({token, head, v}), sum, 1e-6);
      }
    }
  }
}

TEST(MlaDecodeTest, finished_rows_and_queries_need_no_frequencies) {
  const CacheOptions options{.cache_lengths = {5}, .new_tokens = {2}};
  const MlaInputs whole(options, {});
  reference::mla_decode(whole.decode_args());

  const MlaInputs finished(options, {});
  MlaDecodeArgs args = finished.decode_args();
  const MlaNewRows rows{.row_offsets = args.row_offsets,
                        .cache = args.cache,
                        .layer = kTestLayer,
                        .freqs_cis = args.freqs_cis,
                        .kv_norm_gamma = args.kv_norm_gamma,
                        .kv = args.kv,
                        .epsilon = args.epsilon};
  finish_rows(rows);
  rotate_queries(args.q, rows);
  args.freqs_cis.reset();
  args.kv_norm_gamma.reset();
  args.kv.reset();
  reference::mla_decode(args);
  expect_near(finished.out.values(), whole.out.values(), 1e-6);
}

TEST(MlaDecodeTest, raw_is_rounded_to_the_dtype_of_q_before_w_uv) {
  const MlaShape shape{
      .heads = 1, .latent = 6, .value = 6, .row_format = RowFormat::uniform(DType::f32, 8)};
  MlaInputs inputs({.cache_lengths = {5}, .new_tokens = {1}}, shape, DType::bf16, DType::f32);
  for (std::int64_t row = 0; row < 6; ++row) {  // w_uv is the identity
    for (std::int64_t l = 0; l < 6; ++l) inputs.kv_b_proj.view().store({4 + row, l}, row == l);
  }
  const HostTensor out(DType::f32, {1, 1, 6});
  MlaDecodeArgs args = inputs.decode_args();
  args.out = out.view();
  reference::mla_decode(args);
  EXPECT_GT(largest_magnitude(out.values()), 0.0);
  for (const double element : out.values()) EXPECT_EQ(element, round_to(DType::bf16, element));
}

TEST(MlaDecodeTest, keys_without_a_page_are_masked) {
  MlaInputs gap({.cache_lengths = {4}, .new_tokens = {1}}, {});
  gap.cache.unassign(0, 0);  // every cached key: the new one is alone
  MlaDecodeArgs args = gap.decode_args();
  reference::mla_decode(args);
  const KvLayerView rows = gap.cache.view().key(kTestLayer);
  for (std::int64_t head = 0; head < 2; ++head) {
    for (std::int64_t v = 0; v < 3; ++v) {
      double sum = 0.0;
      for (std::int32_t l = 0; l < 6; ++l) {
        sum += rows.load(0, 0, 4, l) * gap.kv_b_proj.at({head * 7 + 4 + v, l});
      }
      EXPECT_NEAR(gap.out.at({0, head, v}), sum, 1e-6);
    }
  }
}

TEST(MlaDecodeTest, a_row_without_keys_is_zero) {
  MlaInputs inputs({.cache_lengths = {0}, .new_tokens = {1}}, {});
  inputs.cache.unassign(0, 0);
  reference::mla_decode(inputs.decode_args());
  EXPECT_EQ(inputs.out.values(), std::vector<double>(6, 0.0));
  EXPECT_EQ(inputs.lse.values(), std::vector<double>(2, -std::numeric_limits<double>::infinity()));
}

TEST(MlaDecodeTest, empty_batches_do_nothing) {
  const MlaInputs no_tokens({.cache_lengths = {4, 2}, .new_tokens = {0, 0}}, {});
  EXPECT_NO_THROW(reference::mla_decode(no_tokens.decode_args()));
}

constexpr MlaShape kFp8Shape{.heads = 2, .nope = 128, .rope = 2, .latent = 256, .value = 128};

TEST(MlaDecodeTest, fp8_weights_are_close_to_mla_prefill) {
  const CacheOptions options{.cache_lengths = {3}, .new_tokens = {2}};
  MlaInputs prefill(options, kFp8Shape, DType::f32, DType::fp8_e4m3);
  const MlaInputs decode(options, kFp8Shape, DType::f32, DType::fp8_e4m3);
  reference::mla_prefill(prefill.prefill_args());
  reference::mla_decode(decode.decode_args());
  expect_near(decode.out.values(), prefill.out.values(),
              0.1 * largest_magnitude(prefill.out.values()));
  EXPECT_NE(decode.out.bytes(), prefill.out.bytes());  // they quantize at different places
}

TEST(MlaDecodeTest, fp8_quantizes_q_nope_and_raw_in_groups_of_128) {
  // One key, so that raw is its latent: 448 once per group and powers of two, scale 1, nothing
  // lost; then a latent with a value off the grid, which raw's quantization moves to 7.
  for (const double probe : {7.0, 7.2}) {
    MlaInputs inputs({.cache_lengths = {0}, .new_tokens = {1}}, kFp8Shape, DType::f32,
                     DType::fp8_e4m3);
    for (std::int64_t i = 0; i < 258; ++i) {
      inputs.kv.view().store({0, i}, i % 128 == 0 ? 448.0 : i == 3 ? probe : 2.0);
    }
    MlaDecodeArgs args = inputs.decode_args();
    args.kv_norm_gamma.reset();
    args.freqs_cis.reset();
    reference::mla_decode(args);
    double expected = 0.0;
    for (std::int64_t l = 0; l < 256; ++l) {
      const double latent = l % 128 == 0 ? 448.0 : l == 3 ? 7.0 : 2.0;
      expected += latent * args.w_uv->load({1, 5, l}) * args.w_uv_scale->load({1, 0, l / 128});
    }
    EXPECT_NEAR(inputs.out.at({0, 1, 5}), expected, std::abs(expected) * 1e-6);
  }
}

class MlaDecodeFormatTest : public testing::TestWithParam<RowFormat> {};

TEST_P(MlaDecodeFormatTest, is_close_to_the_bf16_twin) {
  MlaShape shape{.heads = 2, .nope = 8, .rope = 64, .latent = 512, .value = 8};
  const CacheOptions options{.cache_lengths = {6}, .new_tokens = {2}};
  const MlaInputs twin(options, shape, DType::bf16, DType::bf16);
  shape.row_format = GetParam();
  const MlaInputs inputs(options, shape, DType::bf16, DType::bf16);
  reference::mla_decode(twin.decode_args());
  reference::mla_decode(inputs.decode_args());
  expect_near(inputs.out.values(), twin.out.values(), 0.1 * largest_magnitude(twin.out.values()));
  EXPECT_NE(inputs.out.bytes(), twin.out.bytes());
}

INSTANTIATE_TEST_SUITE_P(Rows, MlaDecodeFormatTest,
                         testing::Values(RowFormat::uniform(DType::fp8_e4m3, 576),
                                         RowFormat::mla_fp8_token(), RowFormat::mla_fp8_block()),
                         [](const auto& info) {
                           return "bytes_" + std::to_string(info.param.row_bytes);
                         });

// The rows of 576, 640 and 656 bytes with 130 latent columns.
class MlaDecodeFp8ProductsTest : public testing::TestWithParam<RowFormat> {
 protected:
  static std::vector<double> evaluate(DType dtype, bool is_allowed, Arithmetic arithmetic) {
    const MlaShape shape{.latent = 130, .row_format = GetParam()};
    const MlaInputs inputs({.cache_lengths = {5, 60}, .new_tokens = {2, 1}}, shape, dtype, dtype);
    MlaDecodeArgs args = inputs.decode_args();
    args.allow_fp8_products = is_allowed;
    reference::mla_decode(args, arithmetic);
    return inputs.out.values();
  }
};

// Allowed is not demanded: random evaluations judge kernels of either kind.
TEST_P(MlaDecodeFp8ProductsTest, random_evaluations_take_and_leave_them) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::uint8_t seed : {0, 1, 4, 5}) {
      EXPECT_NE(evaluate(dtype, true, Arithmetic::random(seed)),
                evaluate(dtype, false, Arithmetic::random(seed)))
          << int{seed};
    }
    for (const std::uint8_t seed : {2, 3, 6, 7}) {
      EXPECT_EQ(evaluate(dtype, true, Arithmetic::random(seed)),
                evaluate(dtype, false, Arithmetic::random(seed)))
          << int{seed};
    }
  }
}

TEST_P(MlaDecodeFp8ProductsTest, naive_evaluation_takes_them_and_the_oracle_does_not) {
  const std::vector<double> exact = evaluate(DType::f32, false, Arithmetic::exact);
  EXPECT_EQ(evaluate(DType::f32, true, Arithmetic::exact), exact);
  const std::vector<double> naive = evaluate(DType::f32, true, Arithmetic::naive);
  expect_near(evaluate(DType::f32, false, Arithmetic::naive), exact,
              1e-5 * largest_magnitude(exact));
  expect_near(naive, exact, 0.1 * largest_magnitude(exact));
  EXPECT_NE(naive, evaluate(DType::f32, false, Arithmetic::naive));
}

// Sums of 13 bits and weights of two fp8 numbers stay near those of bf16.
TEST_P(MlaDecodeFp8ProductsTest, without_the_permission_bf16_keeps_its_digits) {
  const std::vector<double> exact = evaluate(DType::bf16, false, Arithmetic::exact);
  expect_near(evaluate(DType::bf16, false, Arithmetic::random(1)), exact,
              0x1p-6 * largest_magnitude(exact));
}

INSTANTIATE_TEST_SUITE_P(Rows, MlaDecodeFp8ProductsTest,
                         testing::Values(RowFormat::uniform(DType::fp8_e4m3, 132),
                                         RowFormat::mla_fp8_token(130, 2),
                                         RowFormat::mla_fp8_block(130, 2)),
                         [](const auto& info) {
                           return "bytes_" + std::to_string(info.param.row_bytes);
                         });

TEST(MlaDecodeTest, fp8_products_are_of_e4m3_rows_alone) {
  const auto evaluate = [](bool is_allowed) {
    const MlaInputs inputs({.cache_lengths = {5}, .new_tokens = {2}}, {}, DType::bf16, DType::bf16);
    MlaDecodeArgs args = inputs.decode_args();
    args.allow_fp8_products = is_allowed;
    reference::mla_decode(args, Arithmetic::naive);
    return inputs.out.values();
  };
  EXPECT_EQ(evaluate(true), evaluate(false));
}

TEST(MlaDecodeTest, naive_differs_from_exact_by_the_dtypes_rounding) {
  const CacheOptions options{.cache_lengths = {5, 2}, .new_tokens = {2, 3}};
  const MlaInputs exact(options, {}, DType::bf16, DType::bf16);
  const MlaInputs naive(options, {}, DType::bf16, DType::bf16);
  reference::mla_decode(exact.decode_args());
  reference::mla_decode(naive.decode_args(), Arithmetic::naive);
  EXPECT_NE(naive.out.bytes(), exact.out.bytes());
  expect_near(naive.out.values(), exact.out.values(),
              0x1p-4 * largest_magnitude(exact.out.values()));
}

}  // namespace
}  // namespace quire::reference
