// SPDX-License-Identifier: Apache-2.0
#include "reference/sparse_mla.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reference/mla_decode.h"
#include "support/attention_inputs.h"

namespace quire::reference {
namespace {

using test::CacheOptions;
using test::HostTensor;
using test::kTestLayer;
using test::MlaInputs;
using test::MlaShape;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Two sequences with 8 and 5 keys; three queries of two heads.
class SparseMlaTest : public testing::Test {
 protected:
  SparseMlaTest() { inputs_.cache.fill_new(kTestLayer, 21); }

  // Runs the op with the same list for every token and returns `out`.
  std::vector<double> run(const std::vector<double>& indices) {
    return run(indices, [](SparseMlaArgs&) {});
  }
  template <typename Change>
  std::vector<double> run(const std::vector<double>& indices, Change change) {
    std::vector<double> repeated;
    for (int token = 0; token < 3; ++token) {
      repeated.insert(repeated.end(), indices.begin(), indices.end());
    }
    const HostTensor table =
        HostTensor::of(DType::i32, {3, static_cast<std::int64_t>(indices.size())}, repeated);
    SparseMlaArgs args = inputs_.sparse_args(q_, table, out_);
    change(args);
    reference::sparse_mla(args);
    return out_.values();
  }

  MlaInputs inputs_{{.cache_lengths = {6, 4}, .new_tokens = {2, 1}}, {}};
  HostTensor q_ = HostTensor::random(DType::f32, {3, 2, 8}, 22);
  HostTensor out_{DType::f32, {3, 2, 6}};
};

TEST_F(SparseMlaTest, over_all_positions_equals_dense) {
  const std::vector<double> sparse = run({0, 1, 2, 3, 4, 5, 6, 7});
  const HostTensor sparse_lse = inputs_.lse;
  MlaDecodeArgs args = inputs_.decode_args();
  args.freqs_cis.reset();
  args.kv_norm_gamma.reset();
  args.kv.reset();
  args.w_uk.reset();
  args.w_uv.reset();
  args.q = q_.view();
  args.scale = 0.5;
  args.mask = Mask::full();
  args.out = out_.view();
  reference::mla_decode(args);
  EXPECT_EQ(sparse, out_.values());
  EXPECT_EQ(sparse_lse.values(), inputs_.lse.values());
}

TEST_F(SparseMlaTest, one_key_returns_its_latent) {
  const std::vector<double> out = run({4});
  const KvLayerView rows = inputs_.cache.view().key(kTestLayer);
  for (std::int32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(out[static_cast<std::size_t>(i)], rows.load(0, 0, 4, i));       // token 0
    EXPECT_EQ(out[static_cast<std::size_t>(24 + i)], rows.load(1, 0, 4, i));  // token 2
  }
}

TEST_F(SparseMlaTest, absent_slots_may_stand_anywhere) {
  const std::vector<double> packed = run({1, 3, 4});
  EXPECT_EQ(run({-1, 1, -1, -1, 3, 4, -1}), packed);
  EXPECT_EQ(run({-7, 1, 3, 4, std::numeric_limits<std::int32_t>::min()}), packed);
}

TEST_F(SparseMlaTest, positions_past_the_keys_are_absent) {
  const std::vector<double> packed = run({1, 3, 4});
  // 8 is past both sequences; 5 … 7 are keys of the first only.
  EXPECT_EQ(run({1, 8, 3, 100, 4, std::numeric_limits<std::int32_t>::max()}), packed);
  const std::vector<double> with_five = run({1, 3, 4, 5});
  EXPECT_NE(with_five[0], packed[0]);
  EXPECT_EQ(with_five[24], packed[24]);
}

TEST_F(SparseMlaTest, duplicates_count_as_often_as_they_are_given) {
  const std::vector<double> once = run({2, 3});
  const std::vector<double> twice = run({2, 2, 3});
  EXPECT_NE(twice, once);
  // Two equal keys weigh as one whose score is larger by log 2: check against the weights
  // themselves.
  const KvLayerView rows = inputs_.cache.view().key(kTestLayer);
  double scores[2] = {0.0, 0.0};
  for (std::int32_t i = 0; i < 8; ++i) {
    scores[0] += 0.5 * q_.at({0, 0, i}) * rows.load(0, 0, 2, i);
    scores[1] += 0.5 * q_.at({0, 0, i}) * rows.load(0, 0, 3, i);
  }
  const double two = 2 * std::exp(scores[0]);
  const double three = std::exp(scores[1]);
  const double expected =
      (two * rows.load(0, 0, 2, 0) + three * rows.load(0, 0, 3, 0)) / (two + three);
  EXPECT_NEAR(twice[0], expected, 1e-6);
  EXPECT_NEAR(inputs_.lse.at({0, 0}), std::log(two + three), 1e-6);
}

TEST_F(SparseMlaTest, slot_order_does_not_matter) {
  const std::vector<double> forward = run({0, 1, 2, 3, 4});
  const std::vector<double> backward = run({4, 2, 0, 3, 1});
  for (std::size_t i = 0; i < forward.size(); ++i) EXPECT_NEAR(forward[i], backward[i], 1e-6);
}

TEST_F(SparseMlaTest, topk_lengths_limit_the_slots_of_each_token) {
  const std::vector<double> two = run({1, 3});
  const std::vector<double> four = run({1, 3, 4, 2});
  const HostTensor lengths = HostTensor::of(DType::i32, {3}, {2, 4, 1000});
  const std::vector<double> limited =
      run({1, 3, 4, 2}, [&](SparseMlaArgs& args) { args.topk_lengths = lengths.view(); });
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(limited[i], two[i]);
    EXPECT_EQ(limited[12 + i], four[12 + i]);
    EXPECT_EQ(limited[24 + i], four[24 + i]);
  }
}

TEST_F(SparseMlaTest, lengths_of_zero_or_less_leave_nothing) {
  const HostTensor lengths = HostTensor::of(DType::i32, {3}, {0, -5, 0});
  const std::vector<double> out =
      run({1, 3}, [&](SparseMlaArgs& args) { args.topk_lengths = lengths.view(); });
  EXPECT_EQ(out, std::vector<double>(36, 0.0));
}

TEST_F(SparseMlaTest, no_valid_key_gives_zero_and_minus_infinity) {
  EXPECT_EQ(run({-1, -1, 50}), std::vector<double>(36, 0.0));
  EXPECT_EQ(inputs_.lse.values(), std::vector<double>(6, -kInfinity));
}

TEST_F(SparseMlaTest, no_valid_key_keeps_the_sink_as_lse) {
  const HostTensor sinks = HostTensor::of(DType::f32, {2}, {0.5, -3.0});
  const auto with_sinks = [&](SparseMlaArgs& args) { args.sinks = sinks.view(); };
  EXPECT_EQ(run({-1}, with_sinks), std::vector<double>(36, 0.0));
  EXPECT_EQ(inputs_.lse.values(), (std::vector{0.5, -3.0, 0.5, -3.0, 0.5, -3.0}));
}

TEST_F(SparseMlaTest, a_sink_takes_its_share_of_the_weight) {
  const std::vector<double> without = run({1, 2, 3});
  const double lse = inputs_.lse.at({0, 1});
  const HostTensor sinks = HostTensor::of(DType::f32, {2}, {-1e38, 0.75});
  const std::vector<double> with =
      run({1, 2, 3}, [&](SparseMlaArgs& args) { args.sinks = sinks.view(); });
  EXPECT_EQ(with[0], without[0]);  // head 0: disabled
  const double share = std::exp(lse) / (std::exp(lse) + std::exp(0.75));
  EXPECT_NEAR(with[6], without[6] * share, 1e-6);
  EXPECT_NEAR(inputs_.lse.at({0, 1}), std::log(std::exp(lse) + std::exp(0.75)), 1e-6);
}

TEST_F(SparseMlaTest, keys_without_a_page_are_absent) {
  const std::vector<double> packed = run({4});
  inputs_.cache.unassign(0, 0);
  const std::vector<double> out = run({0, 4, 3});
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(out[i], packed[i]);
}

TEST_F(SparseMlaTest, an_extra_stream_is_more_keys) {
  const std::vector<double> together = run({0, 2, 4, 1, 3});
  const HostTensor extra =
      HostTensor::of(DType::i32, {3, 4}, {1, -1, 3, 2, 1, -1, 3, 2, 1, -1, 3, 2});
  const HostTensor lengths = HostTensor::of(DType::i32, {3}, {3, 3, 3});
  const std::vector<double> streams = run({0, 2, 4}, [&](SparseMlaArgs& args) {
    args.extra = SparseExtra{.cache = args.cache,
                             .layer = kTestLayer,
                             .indices = extra.view(),
                             .lengths = lengths.view()};
  });
  EXPECT_EQ(streams, together);
}

TEST_F(SparseMlaTest, an_extra_stream_has_its_own_cache) {
  MlaInputs other({.cache_lengths = {1, 2}, .new_tokens = {2, 1}}, {});
  other.cache.fill_new(kTestLayer, 77);
  const HostTensor extra = HostTensor::of(DType::i32, {3, 1}, {0, 0, 1});
  const std::vector<double> out = run({-1}, [&](SparseMlaArgs& args) {
    args.extra =
        SparseExtra{.cache = other.cache.view(), .layer = kTestLayer, .indices = extra.view()};
  });
  const KvLayerView rows = other.cache.view().key(kTestLayer);
  EXPECT_EQ(out[3], rows.load(0, 0, 0, 3));
  EXPECT_EQ(out[24 + 3], rows.load(1, 0, 1, 3));
}

TEST_F(SparseMlaTest, naive_differs_from_exact_by_the_dtypes_rounding) {
  q_ = HostTensor::random(DType::bf16, {3, 2, 8}, 22);
  const std::vector<double> exact = run({0, 1, 2, 3, 4});
  const HostTensor table =
      HostTensor::of(DType::i32, {3, 5}, {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4});
  reference::sparse_mla(inputs_.sparse_args(q_, table, out_), Arithmetic::naive);
  EXPECT_NE(out_.values(), exact);
  for (std::size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(out_.values()[i], exact[i], 0x1p-6);
}

class SparseMlaFormatTest : public testing::TestWithParam<RowFormat> {};

TEST_P(SparseMlaFormatTest, is_close_to_the_bf16_twin) {
  MlaShape shape{.heads = 2, .rope = 64, .latent = 512};
  const CacheOptions options{.cache_lengths = {6}, .new_tokens = {1}};
  MlaInputs twin(options, shape, DType::bf16);
  shape.row_format = GetParam();
  MlaInputs inputs(options, shape, DType::bf16);
  const HostTensor q = HostTensor::random(DType::bf16, {1, 2, 576}, 5, 0.1);
  const HostTensor indices = HostTensor::of(DType::i32, {1, 5}, {6, 2, -1, 3, 0});
  const HostTensor expected(DType::f32, {1, 2, 512});
  const HostTensor out(DType::f32, {1, 2, 512});
  twin.cache.fill_new(kTestLayer, 9);
  inputs.cache.fill_new(kTestLayer, 9);
  reference::sparse_mla(twin.sparse_args(q, indices, expected));
  reference::sparse_mla(inputs.sparse_args(q, indices, out));
  for (std::size_t i = 0; i < 1024; ++i) {
    ASSERT_NEAR(out.values()[i], expected.values()[i], 0x1p-4) << i;
  }
  EXPECT_NE(out.bytes(), expected.bytes());
}

INSTANTIATE_TEST_SUITE_P(Rows, SparseMlaFormatTest,
                         testing::Values(RowFormat::uniform(DType::fp8_e4m3, 576),
                                         RowFormat::mla_fp8_token(), RowFormat::mla_fp8_block()),
                         [](const auto& info) {
                           return "bytes_" + std::to_string(info.param.row_bytes);
                         });

}  // namespace
}  // namespace quire::reference
