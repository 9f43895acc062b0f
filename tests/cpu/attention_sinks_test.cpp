// SPDX-License-Identifier: Apache-2.0
// Sinks that are no numbers, on every target: they reach every row with a key, and of a row without
// one the LSE alone, which is then the sink itself (docs/numerics.md).
#include <gtest/gtest.h>

#include <limits>

#include "cpu/attention_target.h"
#include "reference/flash_attention.h"
#include "reference/sparse_mla.h"
#include "support/attention_inputs.h"

namespace quire::cpu {
namespace {

using test::CacheOptions;
using test::FlashInputs;
using test::HostTensor;
using test::MlaInputs;
using test::MlaShape;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const HostTensor& sinks() {
  static const HostTensor tensor =
      HostTensor::of(DType::f32, {5}, {kNaN, kInfinity, -kInfinity, 1.0 / 3.0, -700.5});
  return tensor;
}

void expect_same_kinds(const std::vector<double>& actual, const std::vector<double>& exact) {
  ASSERT_EQ(actual.size(), exact.size());
  for (std::size_t i = 0; i < exact.size(); ++i) {
    ASSERT_TRUE(is_same_kind(actual[i], exact[i])) << i << ": " << actual[i] << " not " << exact[i];
  }
}

class AttentionSinks : public RowTarget {
 protected:
  template <typename Args, typename Op, typename Oracle>
  void expect_oracle(const Args& args, HostTensor& out, HostTensor& lse, Op&& op,
                     Oracle&& oracle) const {
    oracle(args);
    const Results exact = read_results(out, lse);
    poison(out);
    poison(lse);
    op(args, context(2));
    const Results actual = read_results(out, lse);
    expect_same_kinds(actual.out, exact.out);
    expect_same_kinds(actual.lse, exact.lse);
    // The reference gives a row without keys its sink and zeros: then nothing may be rounded.
    const std::size_t width = exact.out.size() / exact.lse.size();
    for (std::size_t row = 0; row < exact.lse.size(); ++row) {
      if (exact.lse[row] != sinks().values()[row % 5]) continue;
      EXPECT_EQ(actual.lse[row], exact.lse[row]) << row;
      EXPECT_EQ(actual.out[row * width], 0.0) << row;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(, AttentionSinks, kEveryTarget, target_name);

// Of the second sequence's tokens, two of three see nothing.
TEST_P(AttentionSinks, FlashAttentionTakesSinksThatAreNoNumbers) {
  HostTensor bits(DType::u8, {23, 20});
  for (std::int64_t token = 0; token < 23; ++token) {
    for (std::int64_t key = 0; key < 20; ++key) {
      bits.view().store({token, key}, token >= 20 && token != 21 ? 0.0 : 1.0);
    }
  }
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const double softcap : {0.0, 3.0}) {
      SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(softcap));
      FlashInputs inputs({.cache_lengths = {30, 0},
                          .new_tokens = {20, 3},
                          .row_format = RowFormat::uniform(dtype, 16),
                          .page_size = 8,
                          .num_kv_heads = 1},
                         5, dtype);
      FlashAttentionArgs args = inputs.args();
      args.mask = Mask::tree(bits.view());
      args.softcap = softcap;
      args.sinks = sinks().view();
      expect_oracle(
          args, inputs.out, inputs.lse,
          [](const auto& its, const Context& context) { flash_attention(its, context); },
          [](const auto& its) { reference::flash_attention(its); });
    }
  }
}

// Tokens with keys in both streams, in either and in none.
TEST_P(AttentionSinks, SparseAttentionTakesSinksThatAreNoNumbers) {
  const CacheOptions options{.cache_lengths = {9, 50}, .new_tokens = {1, 3}, .page_size = 8};
  const MlaShape shape{.heads = 5, .rope = 6, .latent = 37};
  const HostTensor indices = HostTensor::of(DType::i32, {4, 2}, {1, 3, 2, -1, -1, -1, -1, -1});
  const HostTensor extra_indices = HostTensor::of(DType::i32, {4, 1}, {5, -1, 4, -1});
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    MlaInputs inputs(options, shape, dtype);
    MlaInputs extra(options, shape, dtype);
    inputs.cache.fill_new(test::kTestLayer, 21);
    extra.cache.fill_new(test::kTestLayer, 22);
    const HostTensor q = HostTensor::random(dtype, {4, 5, 43}, 3);
    HostTensor out(dtype, {4, 5, 37});
    SparseMlaArgs args = inputs.sparse_args(q, indices, out);
    args.sinks = sinks().view();
    for (const bool has_extra : {false, true}) {
      SCOPED_TRACE(std::string(name(dtype)) + (has_extra ? " extra" : ""));
      if (has_extra) {
        args.extra = SparseExtra{.cache = extra.cache.view(),
                                 .layer = test::kTestLayer,
                                 .indices = extra_indices.view()};
      }
      expect_oracle(
          args, out, inputs.lse,
          [](const auto& its, const Context& context) { sparse_mla(its, context); },
          [](const auto& its) { reference::sparse_mla(its); });
    }
  }
}

}  // namespace
}  // namespace quire::cpu
