// SPDX-License-Identifier: Apache-2.0
// flash_attention of every target that can run here against the oracle.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cpu/attention_target.h"
#include "reference/flash_attention.h"
#include "support/attention_inputs.h"

namespace quire::cpu {
namespace {

using test::CacheOptions;
using test::FlashInputs;
using test::HostTensor;

class FlashAttentionTarget : public RowTarget {
 protected:
  Results run_target(FlashInputs& inputs, const FlashAttentionArgs& args,
                     int num_threads = 2) const {
    poison(inputs.out);
    poison(inputs.lse);
    EXPECT_EQ(supports(args, context(num_threads)).kernel, kernel("flash_attention"));
    flash_attention(args, context(num_threads));
    return read_results(inputs.out, inputs.lse);
  }

  static Results run_oracle(FlashInputs& inputs, const FlashAttentionArgs& args,
                            reference::Arithmetic arithmetic) {
    poison(inputs.out);
    poison(inputs.lse);
    reference::flash_attention(args, arithmetic);
    return read_results(inputs.out, inputs.lse);
  }

  void expect_agreement(FlashInputs& inputs, const FlashAttentionArgs& args) const {
    const Results exact = run_oracle(inputs, args, reference::Arithmetic::exact);
    const Results naive = run_oracle(inputs, args, reference::Arithmetic::naive);
    expect_rule(args.out.dtype, run_target(inputs, args), exact, naive);
  }
};

INSTANTIATE_TEST_SUITE_P(, FlashAttentionTarget, kEveryTarget, target_name);

CacheOptions ragged(DType dtype, std::int32_t head_dim) {
  return {.cache_lengths = {0, 37, 5, 300},
          .new_tokens = {41, 1, 0, 3},
          .row_format = RowFormat::uniform(dtype, head_dim),
          .page_size = 8,
          .num_kv_heads = 2};
}

TEST_P(FlashAttentionTarget, TakesOddWidthsAndGroups) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const std::int32_t head_dim : {1, 7, 33, 130}) {
      FlashInputs inputs(ragged(dtype, head_dim), 6, dtype);
      SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(head_dim));
      expect_agreement(inputs, inputs.args());
    }
  }
}

// More tokens than a block of rows, more keys than a chunk, neither a multiple of anything.
TEST_P(FlashAttentionTarget, CrossesBlocksAndChunks) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    FlashInputs inputs({.cache_lengths = {230},
                        .new_tokens = {83},
                        .row_format = RowFormat::uniform(dtype, 24),
                        .page_size = 16,
                        .num_kv_heads = 1},
                       3, dtype);
    expect_agreement(inputs, inputs.args());
  }
}

TEST_P(FlashAttentionTarget, MergesSplitsOfLongSequences) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    FlashInputs inputs({.cache_lengths = {2100, 1023, 1024},
                        .new_tokens = {2, 1, 1},
                        .row_format = RowFormat::uniform(dtype, 16),
                        .page_size = 32,
                        .num_kv_heads = 2},
                       4, dtype);
    const HostTensor sinks = HostTensor::random(DType::f32, {4}, 9);
    FlashAttentionArgs args = inputs.args();
    expect_agreement(inputs, args);
    args.sinks = sinks.view();
    args.mask = Mask::causal() & Mask::sliding_window(1100);
    expect_agreement(inputs, args);
  }
}

TEST_P(FlashAttentionTarget, FollowsEveryMask) {
  const HostTensor bits = [] {
    HostTensor tensor(DType::u8, {45, 41});
    for (std::size_t i = 0; i < tensor.bytes().size(); ++i) {
      tensor.bytes()[i] = static_cast<std::byte>(i % 3 == 0 ? 1 : 0);
    }
    return tensor;
  }();
  const Mask masks[] = {Mask::full(),
                        Mask::sliding_window(9),
                        Mask::causal() & Mask::sliding_window(1),
                        Mask::chunked(16) & Mask::causal(),
                        Mask::tree(bits.view()),
                        Mask::tree(bits.view()) & Mask::sliding_window(20),
                        (Mask::chunked(4) & Mask::causal()) | Mask::sliding_window(3)};
  for (const Mask& mask : masks) {
    SCOPED_TRACE(mask.describe());
    FlashInputs inputs(ragged(DType::bf16, 16), 4, DType::bf16);
    FlashAttentionArgs args = inputs.args();
    args.mask = mask;
    expect_agreement(inputs, args);
  }
}

TEST_P(FlashAttentionTarget, ModifiesScores) {
  const HostTensor slopes = HostTensor::of(DType::f32, {4}, {0.0, 0.25, -0.5, 1.0});
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const double scale : {0.7, 0.0, -1.5, 40.0}) {
      for (const double softcap : {0.0, 0.3, 50.0}) {
        SCOPED_TRACE(std::to_string(scale) + " " + std::to_string(softcap));
        FlashInputs inputs(ragged(dtype, 16), 4, dtype);
        FlashAttentionArgs args = inputs.args();
        args.scale = scale;
        args.softcap = softcap;
        args.alibi_slopes = slopes.view();
        expect_agreement(inputs, args);
      }
    }
  }
}

// A single key has weight 1: its value must come out, whatever its code.
TEST_P(FlashAttentionTarget, DecodesEveryCode) {
  for (const DType dtype : {DType::fp8_e4m3, DType::fp8_e5m2, DType::i8}) {
    for (const DType q_dtype : {DType::bf16, DType::f32}) {
      CacheOptions options{.cache_lengths = {0}, .new_tokens = {1}, .num_kv_heads = 1};
      options.row_format = RowFormat::uniform(dtype, 256);
      if (dtype == DType::i8) {
        options.row_format = RowFormat::scaled(dtype, 256, 256);
        options.static_scale = 0.5;
      }
      FlashInputs inputs(options, 1, q_dtype);
      const KvLayerView keys = inputs.cache.view().key(test::kTestLayer);
      const KvLayerView values = inputs.cache.view().value(test::kTestLayer);
      for (int code = 0; code < 256; ++code) {
        keys.row(0, 0, 0)[code] = std::byte{0};
        values.row(0, 0, 0)[code] = static_cast<std::byte>(code);
      }
      HostTensor out(DType::f32, {1, 1, 256});
      FlashAttentionArgs args = inputs.args();
      args.out = out.view();
      flash_attention(args, context(1));
      for (int code = 0; code < 256; ++code) {
        const double expected = values.load(0, 0, 0, code);
        const double actual = out.at({0, 0, code});
        ASSERT_TRUE(is_same_kind(actual, expected)) << name(dtype) << " code " << code;
        if (!std::isfinite(expected)) continue;
        ASSERT_NEAR(actual, expected, 1e-6 * std::abs(expected)) << name(dtype) << " code " << code;
      }
    }
  }
}

TEST_P(FlashAttentionTarget, IsTheSameOnAnyNumberOfThreads) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    FlashInputs inputs({.cache_lengths = {0, 1500, 3, 60},
                        .new_tokens = {70, 2, 1, 17},
                        .row_format = RowFormat::uniform(dtype, 24),
                        .page_size = 16,
                        .num_kv_heads = 4},
                       8, dtype);
    const std::vector<std::byte> expected = run_target(inputs, inputs.args(), 1).bits;
    for (const int num_threads : kThreadCounts) {
      EXPECT_EQ(run_target(inputs, inputs.args(), num_threads).bits, expected) << num_threads;
    }
  }
}

// A sequence alone in its batch gives the bits that it gives among others.
TEST_P(FlashAttentionTarget, IsTheSameInAnyBatch) {
  const CacheOptions together{.cache_lengths = {9, 1300, 0},
                              .new_tokens = {1, 3, 50},
                              .row_format = RowFormat::uniform(DType::bf16, 32),
                              .page_size = 16};
  FlashInputs inputs(together, 4, DType::bf16);
  FlashAttentionArgs args = inputs.args();
  args.batch_invariant = true;
  run_target(inputs, args);
  const std::vector<double> all = inputs.out.values();
  const std::int64_t row_size = 4 * 32;
  for (std::int64_t sequence = 0, first = 0; sequence < 3; ++sequence) {
    const std::int64_t count = together.new_tokens[static_cast<std::size_t>(sequence)];
    const HostTensor offsets = HostTensor::of(DType::u32, {2}, {0.0, static_cast<double>(count)});
    FlashAttentionArgs alone = args;
    alone.row_offsets = offsets.view();
    alone.cache.cache_lengths.shape[0] = 1;
    alone.cache.cache_lengths.data = args.cache.cache_lengths.as<std::uint32_t>() + sequence;
    alone.cache.page_table.shape[0] = 1;
    alone.cache.page_table.data =
        args.cache.page_table.as<std::uint32_t>() + sequence * args.cache.page_table.strides[0];
    const auto rows = [&](TensorView tensor) {
      tensor.data =
          static_cast<std::byte*>(tensor.data) + bytes_for(tensor.dtype, first * tensor.strides[0]);
      tensor.shape[0] = count;
      return tensor;
    };
    alone.q = rows(args.q);
    alone.out = rows(args.out);
    alone.lse = rows(*args.lse);
    poison(inputs.out);
    flash_attention(alone, context(1));
    const std::vector<double> own = inputs.out.values();
    for (std::int64_t i = first * row_size; i < (first + count) * row_size; ++i) {
      ASSERT_EQ(own[static_cast<std::size_t>(i)], all[static_cast<std::size_t>(i)]) << sequence;
    }
    first += count;
  }
}

// NaN in one query is that row's alone.
TEST_P(FlashAttentionTarget, KeepsNaNInItsRow) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    FlashInputs inputs(ragged(dtype, 16), 4, dtype);
    inputs.q.view().store({7, 2, 5}, std::numeric_limits<double>::quiet_NaN());
    const Results run = run_target(inputs, inputs.args());
    for (std::size_t i = 0; i < run.lse.size(); ++i) {
      const bool is_spoiled = i == 7 * 4 + 2;
      ASSERT_EQ(std::isnan(run.lse[i]), is_spoiled) << i;
      for (std::size_t column = 0; column < 16; ++column) {
        ASSERT_EQ(std::isnan(run.out[i * 16 + column]), is_spoiled) << i;
      }
    }
  }
}

}  // namespace
}  // namespace quire::cpu
