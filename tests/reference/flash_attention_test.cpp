// SPDX-License-Identifier: Apache-2.0
#include "reference/flash_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "reference/ragged.h"
#include "support/attention_inputs.h"
#include "support/expect_near.h"

namespace quire::reference {
namespace {

using test::CacheOptions;
using test::expect_near;
using test::FlashInputs;
using test::HostTensor;
using test::kTestLayer;
using test::PageOrder;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

CacheOptions ragged_options() {
  return {.cache_lengths = {5, 0, 9, 3}, .new_tokens = {2, 0, 1, 6}};
}

// The formula written out in the plainest way: no maximum, no shared code.
std::vector<double> written_out(const FlashAttentionArgs& args,
                                const std::function<bool(std::int64_t, std::int64_t)>& shows) {
  const KvLayerView keys = args.cache.key(args.layer);
  const KvLayerView values = args.cache.is_mla() ? keys : args.cache.value(args.layer);
  const std::int64_t group = args.q.shape[1] / keys.num_heads;
  std::vector<double> result;
  for (const Token& token : tokens_of(args.row_offsets, args.cache)) {
    const std::int64_t last = num_keys(args.row_offsets, args.cache, token.sequence);
    for (std::int64_t head = 0; head < args.q.shape[1]; ++head) {
      std::vector<double> sums(static_cast<std::size_t>(args.out.shape[2]), 0.0);
      double denominator = args.sinks ? std::exp(args.sinks->load({head})) : 0.0;
      for (std::int64_t key = 0; key < last; ++key) {
        if (!shows(token.position, key)) continue;
        double score = 0.0;
        for (std::int32_t i = 0; i < keys.width(); ++i) {
          score +=
              args.q.load({token.index, head, i}) * keys.load(token.sequence, head / group, key, i);
        }
        score *= args.scale.value_or(std::pow(keys.width(), -0.5));
        if (args.softcap > 0) score = args.softcap * std::tanh(score / args.softcap);
        if (args.alibi_slopes) {
          score += args.alibi_slopes->load({head}) * static_cast<double>(key - token.position);
        }
        denominator += std::exp(score);
        for (std::size_t i = 0; i < sums.size(); ++i) {
          sums[i] += std::exp(score) *
                     values.load(token.sequence, head / group, key, static_cast<std::int32_t>(i));
        }
      }
      for (const double sum : sums) result.push_back(denominator == 0.0 ? 0.0 : sum / denominator);
    }
  }
  return result;
}

bool causal(std::int64_t query, std::int64_t key) {
  return key <= query;
}

struct HeadCase {
  std::int64_t heads;
  std::int64_t kv_heads;
};

class FlashAttentionHeadsTest : public testing::TestWithParam<HeadCase> {};

TEST_P(FlashAttentionHeadsTest, equals_the_formula) {
  CacheOptions options = ragged_options();
  options.num_kv_heads = GetParam().kv_heads;
  const FlashInputs inputs(options, GetParam().heads);
  reference::flash_attention(inputs.args());
  expect_near(inputs.out.values(), written_out(inputs.args(), causal), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Groups, FlashAttentionHeadsTest,
                         testing::Values(HeadCase{1, 1}, HeadCase{2, 2}, HeadCase{4, 2},
                                         HeadCase{6, 2}, HeadCase{4, 1}, HeadCase{3, 3}),
                         [](const auto& info) {
                           return std::to_string(info.param.heads) + "_over_" +
                                  std::to_string(info.param.kv_heads);
                         });

struct MaskCase {
  const char* name;
  Mask mask;
  std::function<bool(std::int64_t, std::int64_t)> shows;
};
std::ostream& operator<<(std::ostream& stream, const MaskCase& mask_case) {
  return stream << mask_case.name;
}

class FlashAttentionMaskTest : public testing::TestWithParam<MaskCase> {};

TEST_P(FlashAttentionMaskTest, equals_the_formula) {
  const FlashInputs inputs(ragged_options(), 2);
  FlashAttentionArgs args = inputs.args();
  args.mask = GetParam().mask;
  reference::flash_attention(args);
  expect_near(inputs.out.values(), written_out(args, GetParam().shows), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(
    Masks, FlashAttentionMaskTest,
    testing::Values(MaskCase{"full", Mask::full(), [](auto, auto) { return true; }},
                    MaskCase{"causal", Mask::causal(), causal},
                    MaskCase{"window", Mask::causal() & Mask::sliding_window(3),
                             [](auto q, auto k) { return k <= q && k > q - 3; }},
                    MaskCase{"chunked", Mask::chunked(4),
                             [](auto q, auto k) { return q / 4 == k / 4; }}),
    [](const auto& info) { return std::string(info.param.name); });

class FlashAttentionPagesTest : public testing::TestWithParam<std::tuple<std::int64_t, PageOrder>> {
};

TEST_P(FlashAttentionPagesTest, any_order_is_bit_identical_to_one_page) {
  CacheOptions options = ragged_options();
  options.page_size = 64;
  options.page_order = PageOrder::ascending;
  const FlashInputs contiguous(options, 4);
  reference::flash_attention(contiguous.args());

  std::tie(options.page_size, options.page_order) = GetParam();
  const FlashInputs paged(options, 4);
  reference::flash_attention(paged.args());
  EXPECT_EQ(paged.out.bytes(), contiguous.out.bytes());
  EXPECT_EQ(paged.lse.bytes(), contiguous.lse.bytes());
}

INSTANTIATE_TEST_SUITE_P(Orders, FlashAttentionPagesTest,
                         testing::Combine(testing::Values(1, 3, 4, 16),
                                          testing::Values(PageOrder::ascending,
                                                          PageOrder::descending,
                                                          PageOrder::shuffled)));

TEST(FlashAttentionTest, heads_first_pool_is_bit_identical) {
  CacheOptions options = ragged_options();
  const FlashInputs tokens_first(options, 4);
  options.heads_first = true;
  const FlashInputs heads_first(options, 4);
  reference::flash_attention(tokens_first.args());
  reference::flash_attention(heads_first.args());
  EXPECT_EQ(heads_first.out.bytes(), tokens_first.out.bytes());
}

TEST(FlashAttentionTest, one_key_returns_its_value_exactly) {
  const FlashInputs inputs({.cache_lengths = {0}, .new_tokens = {1}}, 2);
  reference::flash_attention(inputs.args());
  for (std::int32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(inputs.out.at({0, 1, i}), inputs.cache.view().value(kTestLayer).load(0, 1, 0, i));
  }
}

TEST(FlashAttentionTest, lse_is_the_log_of_the_denominator) {
  CacheOptions options{.cache_lengths = {2}, .new_tokens = {1}};
  options.num_kv_heads = 1;
  const FlashInputs single(options, 1);
  FlashAttentionArgs args = single.args();
  args.scale = 0.0;  // every score is 0
  reference::flash_attention(args);
  EXPECT_FLOAT_EQ(static_cast<float>(single.lse.at({0, 0})), std::log(3.0f));
}

TEST(FlashAttentionTest, default_scale_is_the_root_of_the_head_dim) {
  const FlashInputs by_default(ragged_options(), 2);
  const FlashInputs by_hand(ragged_options(), 2);
  FlashAttentionArgs args = by_hand.args();
  args.scale = 1.0 / std::sqrt(8.0);
  reference::flash_attention(by_default.args());
  reference::flash_attention(args);
  EXPECT_EQ(by_hand.out.bytes(), by_default.out.bytes());
}

TEST(FlashAttentionTest, modifiers_follow_the_formula) {
  const FlashInputs inputs(ragged_options(), 2);
  const HostTensor slopes = HostTensor::of(DType::f32, {2}, {0.25, 0.5});
  const HostTensor sinks = HostTensor::of(DType::f32, {2}, {-1.0, 2.0});
  FlashAttentionArgs args = inputs.args();
  args.scale = 2.0;
  args.softcap = 1.5;
  args.alibi_slopes = slopes.view();
  args.sinks = sinks.view();
  reference::flash_attention(args);
  expect_near(inputs.out.values(), written_out(args, causal), 1e-6);
}

TEST(FlashAttentionTest, mla_values_are_the_first_columns_of_the_key) {
  CacheOptions options = ragged_options();
  options.is_mla = true;
  options.num_kv_heads = 1;
  const FlashInputs inputs(options, 3);
  const HostTensor out(DType::f32, {inputs.cache.num_tokens(), 3, 5});
  FlashAttentionArgs args = inputs.args();
  args.out = out.view();
  reference::flash_attention(args);
  expect_near(out.values(), written_out(args, causal), 1e-6);
}

TEST(FlashAttentionTest, strided_q_and_out_are_followed) {
  const FlashInputs inputs(ragged_options(), 2);
  reference::flash_attention(inputs.args());

  // Heads before tokens in memory.
  const std::int64_t tokens = inputs.cache.num_tokens();
  const HostTensor q(DType::f32, {2, tokens, 8});
  const HostTensor out(DType::f32, {2, tokens, 8});
  const auto swapped = [](TensorView view) {
    std::swap(view.shape[0], view.shape[1]);
    std::swap(view.strides[0], view.strides[1]);
    return view;
  };
  FlashAttentionArgs args = inputs.args();
  args.q = swapped(q.view());
  args.out = swapped(out.view());
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t i = 0; i < 8; ++i) {
        args.q.store({token, head, i}, inputs.q.at({token, head, i}));
      }
    }
  }
  reference::flash_attention(args);
  for (std::int64_t token = 0; token < tokens; ++token) {
    EXPECT_EQ(args.out.load({token, 1, 3}), inputs.out.at({token, 1, 3}));
  }
}

TEST(FlashAttentionTest, nan_in_a_hidden_row_reaches_nobody) {
  const CacheOptions options{.cache_lengths = {3}, .new_tokens = {4}};
  const FlashInputs clean(options, 2);
  reference::flash_attention(clean.args());

  const FlashInputs poisoned(options, 2);
  const PagedKVCache cache = poisoned.cache.view();
  for (std::int32_t i = 0; i < 8; ++i) {  // the last new token: only the last query sees it
    for (std::int64_t head = 0; head < 2; ++head) {
      cache.key(kTestLayer).store(0, head, 6, i, kNan);
      cache.value(kTestLayer).store(0, head, 6, i, kNan);
    }
  }
  reference::flash_attention(poisoned.args());
  for (std::int64_t token = 0; token < 3; ++token) {
    for (std::int64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(poisoned.out.at({token, 0, i}), clean.out.at({token, 0, i}));
    }
  }
  EXPECT_TRUE(std::isnan(poisoned.out.at({3, 0, 0})));
}

class FlashAttentionSentinelTest : public testing::TestWithParam<std::uint32_t> {};

TEST_P(FlashAttentionSentinelTest, keys_without_a_page_are_masked) {
  FlashInputs inputs({.cache_lengths = {10}, .new_tokens = {2}}, 2);
  inputs.cache.unassign(0, 1, GetParam());  // tokens 4 … 7
  reference::flash_attention(inputs.args());
  const auto mapped = [](std::int64_t query, std::int64_t key) {
    return key <= query && (key < 4 || key >= 8);
  };
  expect_near(inputs.out.values(), written_out(inputs.args(), mapped), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Sentinels, FlashAttentionSentinelTest,
                         testing::Values(5u, 0xffffffffu));  // 5 = num_pages: 3 + 2 spare

TEST(FlashAttentionTest, a_row_without_keys_is_zero) {
  FlashInputs inputs({.cache_lengths = {0}, .new_tokens = {2}}, 2);
  inputs.cache.unassign(0, 0);
  reference::flash_attention(inputs.args());
  EXPECT_EQ(inputs.out.values(), std::vector<double>(32, 0.0));
  EXPECT_EQ(inputs.lse.values(), std::vector<double>(4, -kInfinity));
}

TEST(FlashAttentionTest, a_row_without_keys_keeps_its_sink_as_lse) {
  FlashInputs inputs({.cache_lengths = {0}, .new_tokens = {1}}, 2);
  inputs.cache.unassign(0, 0);
  const HostTensor sinks = HostTensor::of(DType::f32, {2}, {0.5, -0.25});
  FlashAttentionArgs args = inputs.args();
  args.sinks = sinks.view();
  reference::flash_attention(args);
  EXPECT_EQ(inputs.out.values(), std::vector<double>(16, 0.0));
  EXPECT_EQ(inputs.lse.values(), (std::vector{0.5, -0.25}));
}

TEST(FlashAttentionTest, empty_batches_do_nothing) {
  const FlashInputs no_tokens({.cache_lengths = {4, 2}, .new_tokens = {0, 0}}, 2);
  EXPECT_NO_THROW(reference::flash_attention(no_tokens.args()));
  const FlashInputs no_sequences({.cache_lengths = {}, .new_tokens = {}}, 2);
  EXPECT_NO_THROW(reference::flash_attention(no_sequences.args()));
}

}  // namespace
}  // namespace quire::reference
