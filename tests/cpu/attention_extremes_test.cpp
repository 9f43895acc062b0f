// SPDX-License-Identifier: Apache-2.0
// Scores of every magnitude that f32 has, on every target. Queries and keys are small whole numbers and
// scales powers of two, so that scores are exact and the oracle's weights are those of ties: a softmax of
// such scores is a mean of a few values, and a kernel has no excuse.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cpu/attention_target.h"
#include "reference/flash_attention.h"
#include "reference/mla_decode.h"
#include "reference/mla_prefill.h"
#include "reference/sparse_mla.h"
#include "support/attention_inputs.h"

namespace quire::cpu {
namespace {

using test::CacheOptions;
using test::FlashInputs;
using test::HostTensor;
using test::MlaInputs;
using test::MlaShape;

// Up to 2^127: the sums of products below stay under 2^8.
constexpr double kScales[] = {0x1p20, 0x1.8p26, 0x1p30, 0x1.4p34, 0x1p60, 0x1p100, 0x1p119};

// Whole numbers from -2 to 2.
void make_whole(const TensorView& dense, std::uint64_t seed) {
  for (std::int64_t i = 0; i < dense.numel(); ++i) {
    store_element(dense.data, dense.dtype, i, std::round(2.0 * test::next_uniform(seed)));
  }
}

void make_keys_whole(const PagedKVCache& cache, const TensorView& row_offsets) {
  const KvLayerView keys = cache.key(test::kTestLayer);
  std::uint64_t seed = 5;
  for (std::int64_t sequence = 0; sequence < cache.batch(); ++sequence) {
    const auto* offsets = row_offsets.as<const std::uint32_t>();
    const std::int64_t count =
        cache.cache_length(sequence) + offsets[sequence + 1] - offsets[sequence];
    for (std::int64_t token = 0; token < count; ++token) {
      for (std::int64_t head = 0; head < cache.num_kv_heads(); ++head) {
        for (std::int32_t column = 0; column < keys.width(); ++column) {
          keys.store(sequence, head, token, column, std::round(2.0 * test::next_uniform(seed)));
        }
      }
    }
  }
}

// num_ulps of 1, the size of values, or of the number itself where that is larger.
void expect_close(DType dtype, const std::vector<double>& actual, const std::vector<double>& exact,
                  double num_ulps) {
  ASSERT_EQ(actual.size(), exact.size());
  for (std::size_t i = 0; i < exact.size(); ++i) {
    ASSERT_TRUE(is_same_kind(actual[i], exact[i])) << i << ": " << actual[i] << " not " << exact[i];
    if (!std::isfinite(exact[i])) continue;
    const double size = std::max(1.0, std::abs(exact[i]));
    ASSERT_NEAR(actual[i], exact[i], num_ulps * ulp_of(dtype, size)) << i;
  }
}

void expect_close(DType dtype, const Results& actual, const Results& exact) {
  expect_close(dtype, actual.out, exact.out, dtype == DType::f32 ? 8.0 : 1.0);  // sums in fp32
  expect_close(DType::f32, actual.lse, exact.lse, 4.0);
}

class AttentionExtremes : public RowTarget {
 protected:
  // Weights are relative to a product of score and factor, not to a score.
  static bool has_rounded_maxima(DType dtype) {
    return GetParam() == Target::amx && dtype == DType::bf16;
  }

  void expect_flash(FlashInputs& inputs, const FlashAttentionArgs& args) const {
    poison(inputs.out);
    reference::flash_attention(args);
    const Results exact = read_results(inputs.out, inputs.lse);
    poison(inputs.out);
    poison(inputs.lse);
    flash_attention(args, context(2));
    const Results actual = read_results(inputs.out, inputs.lse);
    expect_close(args.out.dtype, actual, exact);
  }
};

INSTANTIATE_TEST_SUITE_P(, AttentionExtremes, kEveryTarget, target_name);

CacheOptions options(DType dtype, std::vector<std::uint32_t> cached,
                     std::vector<std::uint32_t> fresh) {
  return {.cache_lengths = std::move(cached),
          .new_tokens = std::move(fresh),
          .row_format = RowFormat::uniform(dtype, 16),
          .page_size = 8,
          .num_kv_heads = 2};
}

TEST_P(AttentionExtremes, FlashAttentionTakesScoresOfAnyMagnitude) {
  const Mask masks[] = {Mask::causal(), Mask::causal() & Mask::sliding_window(9),
                        (Mask::chunked(4) & Mask::causal()) | Mask::sliding_window(3)};
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    // Blocks of rows, streamed rows, and keys that are split and merged.
    FlashInputs inputs(options(dtype, {0, 37, 5, 300, 2100}, {75, 1, 0, 3, 1}), 6, dtype);
    make_whole(inputs.q.view(), 3);
    make_keys_whole(inputs.cache.view(), inputs.cache.row_offsets());
    FlashAttentionArgs args = inputs.args();
    for (const Mask& mask : masks) {
      for (const double scale : kScales) {
        SCOPED_TRACE(std::string(name(dtype)) + " " + mask.describe() + " " +
                     std::to_string(scale));
        args.mask = mask;
        args.scale = scale;
        expect_flash(inputs, args);
        args.scale = -scale;
        expect_flash(inputs, args);
      }
    }
  }
}

// Rows far apart in one block: one near 0, one at each end of the range.
TEST_P(AttentionExtremes, FlashAttentionMixesMagnitudesInABlock) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    FlashInputs inputs(options(dtype, {200}, {40}), 6, dtype);
    make_whole(inputs.q.view(), 3);
    make_keys_whole(inputs.cache.view(), inputs.cache.row_offsets());
    const TensorView q = inputs.q.view();
    for (std::int64_t token = 0; token < 40; ++token) {
      const double factor = std::ldexp(token % 2 == 0 ? 1.0 : -1.0, static_cast<int>(token * 3));
      for (std::int64_t i = 0; i < 6 * 16; ++i) {
        const std::int64_t at = token * 6 * 16 + i;
        store_element(q.data, dtype, at, load_element(q.data, dtype, at) * factor);
      }
    }
    FlashAttentionArgs args = inputs.args();
    args.scale = 1.0;
    expect_flash(inputs, args);
  }
}

// Keys whose scores grow from chunk to chunk, from the smallest magnitude to the largest and through 0.
TEST_P(AttentionExtremes, FlashAttentionRaisesItsMaximumAcrossTheRange) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const std::uint32_t new_tokens : {1u, 33u}) {
      FlashInputs inputs(options(dtype, {700}, {new_tokens}), 2, dtype);
      const KvLayerView keys = inputs.cache.view().key(test::kTestLayer);
      for (std::int64_t token = 0; token < 700 + new_tokens; ++token) {
        const int step = static_cast<int>(token) / 6 - 60;
        const double score = std::ldexp(step < 0 ? -1.0 : 1.0, 2 * std::abs(step));
        for (std::int64_t head = 0; head < 2; ++head) {
          for (std::int32_t column = 0; column < 16; ++column) {
            keys.store(0, head, token, column, column == 0 ? score : 0.0);
          }
        }
      }
      for (std::int64_t i = 0; i < inputs.q.view().numel(); ++i) {
        store_element(inputs.q.view().data, dtype, i, i % 16 == 0 ? 1.0 : 0.0);
      }
      FlashAttentionArgs args = inputs.args();
      args.scale = 1.0;
      expect_flash(inputs, args);
    }
  }
}

void multiply(const TensorView& dense, double factor) {
  for (std::int64_t i = 0; i < dense.numel(); ++i) {
    store_element(dense.data, dense.dtype, i, load_element(dense.data, dense.dtype, i) * factor);
  }
}

// Scores of a usual size from products at the ends of f32's range: differences of products overflow, scales are
// subnormal numbers of f32 or none at all.
TEST_P(AttentionExtremes, FlashAttentionTakesScalesOutsideOfF32) {
  struct Range {
    double q;
    double scale;
  };
  const Range ranges[] = {{0x1p120, 0x1.8p-121}, {0x1p120, 0x1.8p-140}, {0x1p-100, 0x1.8p99},
                          {0x1p-100, 0x1.8p103}, {0x1p-119, 0x1.8p126}, {0x1p-119, 0x1.8p128}};
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const Range& range : ranges) {
      SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(std::log2(range.scale)));
      FlashInputs inputs(options(dtype, {0, 37, 300}, {40, 1, 3}), 6, dtype);
      make_whole(inputs.q.view(), 3);
      multiply(inputs.q.view(), range.q);
      make_keys_whole(inputs.cache.view(), inputs.cache.row_offsets());
      FlashAttentionArgs args = inputs.args();
      args.scale = range.scale;
      expect_flash(inputs, args);
      args.scale = -range.scale;
      expect_flash(inputs, args);
    }
  }
}

// One key: out is its value, to the last bit of an f32 out, whatever the score. A weight beside 1 would be rounded to
// bf16 for the product and not for the sum.
TEST_P(AttentionExtremes, TheLargestWeightIsExactlyOne) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    if (has_rounded_maxima(dtype)) continue;
    FlashInputs inputs(options(dtype, {0, 37, 300}, {40, 1, 3}), 6, dtype);
    HostTensor out(DType::f32, {44, 6, 16});
    FlashAttentionArgs args = inputs.args();
    args.out = out.view();
    args.mask = Mask::causal() & Mask::sliding_window(1);
    for (const double scale : {0.3, 10.1, 1234.5, 1e6 / 3.0}) {
      SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(scale));
      args.scale = scale;
      reference::flash_attention(args);
      const Results exact = read_results(out, inputs.lse);
      poison(out);
      flash_attention(args, context(2));
      EXPECT_EQ(read_results(out, inputs.lse).out, exact.out);
    }
  }
}

constexpr MlaShape kShape{.heads = 5, .nope = 11, .rope = 6, .latent = 37, .value = 13};

// Sums of products that are not exact: the rule of the docs.
TEST_P(AttentionExtremes, LatentAttentionTakesScoresOfAnyMagnitude) {
  const CacheOptions few{
      .cache_lengths = {9, 0, 3, 40}, .new_tokens = {1, 8, 0, 3}, .page_size = 8};
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const double scale : kScales) {
      SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(scale));
      const auto decode = [&](auto&& op) {
        MlaInputs inputs(few, kShape, dtype, dtype);
        MlaDecodeArgs args = inputs.decode_args();
        args.scale = scale * 0x1p-8;
        op(args);
        return read_results(inputs.out, inputs.lse);
      };
      const auto prefill = [&](auto&& op) {
        MlaInputs inputs(few, kShape, dtype, dtype);
        MlaPrefillArgs args = inputs.prefill_args(24);
        args.scale = scale * 0x1p-8;
        op(args);
        return read_results(inputs.out, inputs.lse);
      };
      const auto expect_op = [&](auto&& run, auto&& op, auto&& oracle) {
        const Results exact = run([&](auto& args) { oracle(args, reference::Arithmetic::exact); });
        const Results naive = run([&](auto& args) { oracle(args, reference::Arithmetic::naive); });
        expect_rule(dtype, run([&](auto& args) { op(args, context(2)); }), exact, naive);
      };
      expect_op(
          decode, [](auto& args, const Context& context) { mla_decode(args, context); },
          [](auto& args, reference::Arithmetic how) { reference::mla_decode(args, how); });
      expect_op(
          prefill, [](auto& args, const Context& context) { mla_prefill(args, context); },
          [](auto& args, reference::Arithmetic how) { reference::mla_prefill(args, how); });
    }
  }
}

TEST_P(AttentionExtremes, SparseAttentionTakesScoresOfAnyMagnitude) {
  const CacheOptions few{.cache_lengths = {9, 50}, .new_tokens = {2, 3}, .page_size = 8};
  for (const DType dtype : {DType::bf16, DType::f32}) {
    MlaInputs inputs(few, kShape, dtype);
    inputs.cache.fill_new(test::kTestLayer, 21);
    make_keys_whole(inputs.cache.view(), inputs.cache.row_offsets());
    const HostTensor q(dtype, {5, 5, 43});
    make_whole(q.view(), 3);
    HostTensor indices(DType::i32, {5, 40});
    for (std::int64_t i = 0; i < 200; ++i) {
      store_element(indices.view().data, DType::i32, i,
                    i % 7 == 3 ? -1.0 : static_cast<double>(i % 11));
    }
    HostTensor out(dtype, {5, 5, 37});
    for (const double scale : kScales) {
      SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(scale));
      SparseMlaArgs args = inputs.sparse_args(q, indices, out);
      args.scale = scale;
      reference::sparse_mla(args);
      const Results exact = read_results(out, inputs.lse);
      poison(out);
      poison(inputs.lse);
      sparse_mla(args, context(2));
      const Results actual = read_results(out, inputs.lse);
      expect_close(dtype, actual, exact);
    }
  }
}

// A key whose score is -inf weighs 0, and 0 times its infinite column is NaN: also where a stream of the
// token has no other key, which then has the state of a stream without keys.
TEST_P(AttentionExtremes, SparseAttentionUsesAStreamOfInfiniteScores) {
  const CacheOptions few{.cache_lengths = {9}, .new_tokens = {1}, .page_size = 8};
  const HostTensor chosen = HostTensor::of(DType::i32, {1, 1}, {2});
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const bool is_extra_infinite : {false, true}) {
      SCOPED_TRACE(std::string(name(dtype)) + (is_extra_infinite ? " extra" : " main"));
      MlaInputs inputs(few, kShape, dtype);
      MlaInputs extra(few, kShape, dtype);
      const HostTensor q = HostTensor::filled(dtype, {1, 5, 43}, 0.125);
      HostTensor out(dtype, {1, 5, 37});
      (is_extra_infinite ? extra : inputs)
          .cache.view()
          .key(test::kTestLayer)
          .store(0, 0, 2, 7, -std::numeric_limits<double>::infinity());
      SparseMlaArgs args = inputs.sparse_args(q, chosen, out);
      args.extra = SparseExtra{
          .cache = extra.cache.view(), .layer = test::kTestLayer, .indices = chosen.view()};
      reference::sparse_mla(args);
      const Results exact = read_results(out, inputs.lse);
      ASSERT_TRUE(std::isnan(exact.out[7]) && std::isfinite(exact.out[6]));
      poison(out);
      poison(inputs.lse);
      sparse_mla(args, context(2));
      expect_close(dtype, read_results(out, inputs.lse), exact);
    }
  }
}

// One key, whose score is a whole number: the LSE is scale · score, and only roundings of the kernel's own
// units can miss it.
TEST_P(AttentionExtremes, LseHasTheScaleExactly) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    FlashInputs inputs(options(dtype, {0, 0, 0}, {1, 1, 1}), 6, dtype);
    make_whole(inputs.q.view(), 3);
    make_keys_whole(inputs.cache.view(), inputs.cache.row_offsets());
    FlashAttentionArgs args = inputs.args();
    for (const double scale : {10.1, 77.7, 100.0 / 3.0, 1234.5, 23456.7}) {
      SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(scale));
      args.scale = scale;
      reference::flash_attention(args);
      const Results exact = read_results(inputs.out, inputs.lse);
      poison(inputs.lse);
      flash_attention(args, context(2));
      const Results actual = read_results(inputs.out, inputs.lse);
      for (std::size_t i = 0; i < exact.lse.size(); ++i) {
        // On AMX the largest weight is 1 but for a rounding, whose logarithm a small LSE shows.
        const bool shows_weight = has_rounded_maxima(dtype) && std::abs(exact.lse[i]) < 64.0;
        if (shows_weight) continue;
        EXPECT_EQ(actual.lse[i], exact.lse[i]) << i;
      }
    }
  }
}

}  // namespace
}  // namespace quire::cpu
