// SPDX-License-Identifier: Apache-2.0
#include "reference/mla_prefill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "quire/element.h"
#include "quire/error.h"
#include "reference/mla_prefill_plan.h"
#include "reference/mla_rows.h"
#include "reference/ragged.h"
#include "support/attention_inputs.h"
#include "support/expect_near.h"

namespace quire::reference {
namespace {

using test::CacheOptions;
using test::expect_near;
using test::HostTensor;
using test::kTestLayer;
using test::MlaInputs;
using test::MlaShape;

CacheOptions ragged_options() {
  return {.cache_lengths = {5, 0, 9, 3}, .new_tokens = {2, 0, 1, 6}};
}

// The attention of the header written out, over the rows and queries that the op has left behind.
std::vector<double> written_out(const MlaPrefillArgs& args) {
  const KvLayerView rows = args.cache.key(args.layer);
  const std::int64_t value = args.out.shape[2];
  const std::int64_t per_head = args.kv_b_proj.shape[0] / args.q.shape[1];
  const std::int64_t latent = args.kv_b_proj.shape[1];
  const auto project = [&](std::int64_t sequence, std::int64_t key, std::int64_t row) {
    double sum = 0.0;
    for (std::int32_t i = 0; i < latent; ++i) {
      sum += args.kv_b_proj.load({row, i}) * rows.load(sequence, 0, key, i);
    }
    return sum;
  };
  std::vector<double> result;
  for (const Token& token : tokens_of(args.row_offsets, args.cache)) {
    for (std::int64_t head = 0; head < args.q.shape[1]; ++head) {
      std::vector<double> sums(static_cast<std::size_t>(value), 0.0);
      double denominator = args.sinks ? std::exp(args.sinks->load({head})) : 0.0;
      for (std::int64_t key = 0; key <= token.position; ++key) {
        double score = 0.0;
        for (std::int64_t i = 0; i < args.q.shape[2]; ++i) {
          const std::int64_t nope = per_head - value;
          const double k = i < nope ? project(token.sequence, key, head * per_head + i)
                                    : rows.load(token.sequence, 0, key,
                                                static_cast<std::int32_t>(latent + i - nope));
          score += args.q.load({token.index, head, i}) * k;
        }
        score *= args.scale;
        if (args.softcap > 0) score = args.softcap * std::tanh(score / args.softcap);
        if (args.alibi_slopes) {
          score += args.alibi_slopes->load({head}) * static_cast<double>(key - token.position);
        }
        denominator += std::exp(score);
        for (std::int64_t i = 0; i < value; ++i) {
          sums[static_cast<std::size_t>(i)] +=
              std::exp(score) *
              project(token.sequence, key, head * per_head + per_head - value + i);
        }
      }
      for (const double sum : sums) result.push_back(sum / denominator);
    }
  }
  return result;
}

class MlaPrefillChunkTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(MlaPrefillChunkTest, equals_the_formula) {
  MlaInputs inputs(ragged_options(), {});
  const MlaPrefillArgs args = inputs.prefill_args(GetParam());
  reference::mla_prefill(args);
  expect_near(inputs.out.values(), written_out(args), 1e-6);
}

TEST_P(MlaPrefillChunkTest, equals_one_shot_with_sinks_counted_once) {
  const HostTensor sinks = HostTensor::of(DType::f32, {2}, {1.0, -0.5});
  MlaInputs one_shot(ragged_options(), {});
  MlaPrefillArgs args = one_shot.prefill_args();
  args.sinks = sinks.view();
  reference::mla_prefill(args);

  MlaInputs chunked(ragged_options(), {});
  args = chunked.prefill_args(GetParam());
  args.sinks = sinks.view();
  reference::mla_prefill(args);
  // The states agree to 1e-12; what can differ is the last rounding to f32.
  expect_near(chunked.out.values(), one_shot.out.values(), 0x1p-23);
  expect_near(chunked.lse.values(), one_shot.lse.values(), 0x1p-21);
}

// Sequences of 2, 0 and 1 new tokens are decoded, that of 6 is not: the same sums in another order.
TEST_P(MlaPrefillChunkTest, of_a_mixed_batch_equals_the_formula) {
  MlaInputs inputs(ragged_options(), {});
  const HostTensor sinks = HostTensor::of(DType::f32, {2}, {1.0, -0.5});
  MlaPrefillArgs args = inputs.prefill_args(GetParam());
  args.sinks = sinks.view();
  args.chunks.decode_tokens = 2;
  reference::mla_prefill_plan({.row_offsets = args.row_offsets,
                               .cache = args.cache,
                               .layer = args.layer,
                               .chunks = args.chunks});
  reference::mla_prefill(args);
  expect_near(inputs.out.values(), written_out(args), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(BufferTokens, MlaPrefillChunkTest,
                         testing::Values(1, 3, 4, 8, 12, 24, 1 << 20));

TEST(MlaPrefillTest, modifiers_follow_the_formula) {
  MlaInputs inputs(ragged_options(), {});
  const HostTensor slopes = HostTensor::of(DType::f32, {2}, {0.25, 0.5});
  const HostTensor sinks = HostTensor::of(DType::f32, {2}, {-1.0, 2.0});
  MlaPrefillArgs args = inputs.prefill_args(8);
  args.softcap = 1.5;
  args.alibi_slopes = slopes.view();
  args.sinks = sinks.view();
  reference::mla_prefill(args);
  expect_near(inputs.out.values(), written_out(args), 1e-6);
}

// Allowed is not demanded: random evaluations judge kernels of either kind.
TEST(MlaPrefillTest, random_evaluations_take_and_leave_fp8_products) {
  const auto evaluate = [](bool is_allowed, std::uint8_t seed) {
    MlaInputs inputs(ragged_options(), {});
    MlaPrefillArgs args = inputs.prefill_args();
    args.allow_fp8_products = is_allowed;
    reference::mla_prefill(args, Arithmetic::random(seed));
    return inputs.out.values();
  };
  for (const std::uint8_t seed : {0, 1, 4, 5}) {
    EXPECT_NE(evaluate(true, seed), evaluate(false, seed)) << int{seed};
  }
  for (const std::uint8_t seed : {2, 3, 6, 7}) {
    EXPECT_EQ(evaluate(true, seed), evaluate(false, seed)) << int{seed};
  }
}

TEST(MlaPrefillTest, rotates_q_in_place) {
  MlaInputs inputs(ragged_options(), {});
  const HostTensor before = inputs.q;
  reference::mla_prefill(inputs.prefill_args());
  EXPECT_EQ(inputs.q.at({0, 1, 3}), before.at({0, 1, 3}));
  const double expected =
      before.at({0, 1, 4}) * std::cos(5.0) - before.at({0, 1, 5}) * std::sin(5.0);
  EXPECT_NEAR(inputs.q.at({0, 1, 4}), expected, 1e-6);
}

TEST(MlaPrefillTest, rows_in_the_cache_equal_rows_handed_over) {
  MlaInputs handed(ragged_options(), {});
  reference::mla_prefill(handed.prefill_args());

  MlaInputs in_cache(ragged_options(), {});
  finish_rows({.row_offsets = in_cache.cache.row_offsets(),
               .cache = in_cache.cache.view(),
               .layer = kTestLayer,
               .kv = in_cache.kv.view()});  // stores them raw
  MlaPrefillArgs args = in_cache.prefill_args();
  args.kv.reset();
  reference::mla_prefill(args);
  EXPECT_EQ(in_cache.out.bytes(), handed.out.bytes());
  EXPECT_EQ(in_cache.cache.block_bytes(), handed.cache.block_bytes());
}

TEST(MlaPrefillTest, finished_rows_and_queries_are_left_alone) {
  MlaInputs inputs(ragged_options(), {});
  MlaPrefillArgs args = inputs.prefill_args();
  reference::mla_prefill(args);
  const HostTensor first = inputs.out;
  const HostTensor q = inputs.q;
  const std::vector<std::byte> blocks = inputs.cache.block_bytes();

  args.freqs_cis.reset();
  args.kv_norm_gamma.reset();
  args.kv.reset();
  reference::mla_prefill(args);
  EXPECT_EQ(inputs.out.bytes(), first.bytes());
  EXPECT_EQ(inputs.q.bytes(), q.bytes());
  EXPECT_EQ(inputs.cache.block_bytes(), blocks);
}

TEST(MlaPrefillTest, chunks_that_do_not_cover_the_tokens_throw_before_the_first_write) {
  MlaInputs inputs(ragged_options(), {});
  MlaPrefillArgs args = inputs.prefill_args(8);
  const HostTensor q = inputs.q;
  const std::vector<std::byte> blocks = inputs.cache.block_bytes();
  args.chunks.buffer_lengths.store({0}, -1);
  EXPECT_THROW(reference::mla_prefill(args), Error);
  EXPECT_EQ(inputs.q.bytes(), q.bytes());
  EXPECT_EQ(inputs.cache.block_bytes(), blocks);
}

TEST(MlaPrefillTest, keys_without_a_page_are_masked) {
  MlaInputs short_one({.cache_lengths = {0}, .new_tokens = {3}}, {});
  MlaInputs gap({.cache_lengths = {4}, .new_tokens = {3}}, {});
  gap.cache.unassign(0, 0);  // every cached key
  MlaPrefillArgs args = gap.prefill_args();
  // The same rotation at both positions: none.
  const HostTensor freqs(DType::f32, {64, 2});
  for (std::int64_t i = 0; i < 64; ++i) {
    freqs.view().store({i, 0}, 1);
    freqs.view().store({i, 1}, 0);
  }
  args.freqs_cis = freqs.view();
  MlaPrefillArgs short_args = short_one.prefill_args();
  short_args.freqs_cis = freqs.view();
  reference::mla_prefill(args);
  reference::mla_prefill(short_args);
  EXPECT_EQ(gap.out.bytes(), short_one.out.bytes());
}

TEST(MlaPrefillTest, a_row_without_keys_is_zero) {
  MlaInputs inputs({.cache_lengths = {0}, .new_tokens = {1}}, {});
  inputs.cache.unassign(0, 0);
  reference::mla_prefill(inputs.prefill_args());
  EXPECT_EQ(inputs.out.values(), std::vector<double>(6, 0.0));
  EXPECT_EQ(inputs.lse.values(), std::vector<double>(2, -std::numeric_limits<double>::infinity()));
}

TEST(MlaPrefillTest, empty_batches_do_nothing) {
  MlaInputs no_tokens({.cache_lengths = {4, 2}, .new_tokens = {0, 0}}, {});
  EXPECT_NO_THROW(reference::mla_prefill(no_tokens.prefill_args()));
  MlaInputs no_sequences({.cache_lengths = {}, .new_tokens = {}}, {});
  EXPECT_NO_THROW(reference::mla_prefill(no_sequences.prefill_args()));
}

TEST(MlaPrefillTest, k_and_v_are_rounded_to_the_dtype_of_q) {
  // One key: the output is V itself, in f32 so that its rounding shows.
  const MlaShape shape{.row_format = RowFormat::uniform(DType::f32, 8)};
  MlaInputs inputs({.cache_lengths = {0}, .new_tokens = {1}}, shape, DType::bf16, DType::f32);
  const HostTensor out(DType::f32, {1, 2, 3});
  MlaPrefillArgs args = inputs.prefill_args();
  args.out = out.view();
  reference::mla_prefill(args);
  for (const double element : out.values()) EXPECT_EQ(element, round_to(DType::bf16, element));
}

TEST(MlaPrefillTest, the_latent_is_gathered_in_the_dtype_of_q) {
  const MlaShape shape{.heads = 1, .row_format = RowFormat::uniform(DType::f32, 8)};
  MlaInputs inputs({.cache_lengths = {0}, .new_tokens = {1}}, shape, DType::bf16, DType::f32);
  // V = latent 0 - latent 1, which differ by less than bf16 can hold.
  inputs.kv = HostTensor::of(DType::f32, {1, 8}, {1.0 + 0x1p-9, 1, 0, 0, 0, 0, 0, 0});
  for (std::int64_t row = 4; row < 7; ++row) {
    for (std::int64_t l = 0; l < 6; ++l) {
      inputs.kv_b_proj.view().store({row, l}, l == 0 ? 1.0 : l == 1 ? -1.0 : 0.0);
    }
  }
  MlaPrefillArgs args = inputs.prefill_args();
  args.kv_norm_gamma.reset();
  args.freqs_cis.reset();
  reference::mla_prefill(args);
  EXPECT_EQ(inputs.out.values(), std::vector<double>(3, 0.0));
}

constexpr MlaShape kFp8Shape{.heads = 2, .nope = 128, .rope = 2, .latent = 256, .value = 128};

// The fp8 weight with its scales multiplied in, rounded to f32.
HostTensor dequantized(const MlaInputs& inputs) {
  const TensorView weight = inputs.kv_b_proj.view();
  const HostTensor result(DType::f32, {weight.shape[0], weight.shape[1]});
  for (std::int64_t row = 0; row < weight.shape[0]; ++row) {
    for (std::int64_t i = 0; i < weight.shape[1]; ++i) {
      result.view().store({row, i},
                          weight.load({row, i}) * inputs.kv_b_proj_scale.at({row / 128, i / 128}));
    }
  }
  return result;
}

TEST(MlaPrefillTest, fp8_weights_are_close_to_their_f32_twin) {
  const CacheOptions options{.cache_lengths = {3}, .new_tokens = {2}};
  MlaInputs fp8(options, kFp8Shape, DType::f32, DType::fp8_e4m3);
  MlaInputs twin(options, kFp8Shape);
  twin.kv_b_proj = dequantized(fp8);
  reference::mla_prefill(fp8.prefill_args());
  reference::mla_prefill(twin.prefill_args());
  expect_near(fp8.out.values(), twin.out.values(),
              0.05 * test::largest_magnitude(twin.out.values()));
  EXPECT_NE(fp8.out.bytes(), twin.out.bytes());  // the latent was quantized
}

TEST(MlaPrefillTest, fp8_weights_quantize_the_latent_in_groups_of_128) {
  // One key, so that the output is its V. 448 once per group makes the scale 1: 7 is kept, and 7.2
  // becomes 7.
  for (const double probe : {7.0, 7.2}) {
    MlaInputs inputs({.cache_lengths = {0}, .new_tokens = {1}}, kFp8Shape, DType::f32,
                     DType::fp8_e4m3);
    for (std::int64_t i = 0; i < 258; ++i) {
      inputs.kv.view().store({0, i}, i % 128 == 0 ? 448.0 : i == 3 ? probe : 2.0);
    }
    MlaPrefillArgs args = inputs.prefill_args();
    args.kv_norm_gamma.reset();
    args.freqs_cis.reset();
    reference::mla_prefill(args);
    const std::int64_t row = 256 + 128 + 5;  // head 1, value column 5
    double expected = 0.0;
    for (std::int64_t l = 0; l < 256; ++l) {
      const double latent = l % 128 == 0 ? 448.0 : l == 3 ? 7.0 : 2.0;
      expected +=
          latent * inputs.kv_b_proj.at({row, l}) * inputs.kv_b_proj_scale.at({row / 128, l / 128});
    }
    EXPECT_NEAR(inputs.out.at({0, 1, 5}), expected, std::abs(expected) * 1e-6);
  }
}

TEST(MlaPrefillTest, naive_differs_from_exact_by_the_dtypes_rounding) {
  const CacheOptions options = ragged_options();
  MlaInputs exact(options, {}, DType::bf16, DType::bf16);
  MlaInputs naive(options, {}, DType::bf16, DType::bf16);
  reference::mla_prefill(exact.prefill_args(8));
  reference::mla_prefill(naive.prefill_args(8), Arithmetic::naive);
  EXPECT_NE(naive.out.bytes(), exact.out.bytes());
  expect_near(naive.out.values(), exact.out.values(), 0x1p-4);
}

}  // namespace
}  // namespace quire::reference
