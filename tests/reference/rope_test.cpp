// SPDX-License-Identifier: Apache-2.0
#include "reference/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "quire/element.h"
#include "quire/paged_kv_operand.h"
#include "reference/ragged.h"
#include "reference/row_codec.h"
#include "support/cache_builder.h"
#include "support/cache_snapshot.h"
#include "support/host_tensor.h"

namespace quire::reference {
namespace {

using test::CacheOptions;
using test::CacheSnapshot;
using test::HostTensor;
using test::TestCache;

// Every position: a quarter turn, (a, b) → (-b, a).
HostTensor quarter_turn(std::int64_t positions, std::int64_t rope_dim) {
  HostTensor freqs(DType::f32, {positions, rope_dim});
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t c = 0; c < rope_dim; ++c) freqs.view().store({p, c}, c % 2 == 0 ? 0.0 : 1.0);
  }
  return freqs;
}

// Position p: "cos" = p + 1 and "sin" = 0, so that a result tells which row of freqs was read.
HostTensor row_naming(std::int64_t positions, std::int64_t rope_dim) {
  HostTensor freqs(DType::f32, {positions, rope_dim});
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t c = 0; c < rope_dim; ++c) {
      freqs.view().store({p, c}, c % 2 == 0 ? static_cast<double>(p + 1) : 0.0);
    }
  }
  return freqs;
}

HostTensor angles(std::int64_t positions, std::int64_t rope_dim) {
  HostTensor freqs(DType::f32, {positions, rope_dim});
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t j = 0; j < rope_dim / 2; ++j) {
      const double angle = static_cast<double>(p) * std::pow(100.0, -static_cast<double>(j) / 4.0);
      freqs.view().store({p, 2 * j}, std::cos(angle));
      freqs.view().store({p, 2 * j + 1}, std::sin(angle));
    }
  }
  return freqs;
}

RopeArgs args_for(const HostTensor& q, const HostTensor& out, const HostTensor& freqs,
                  const TestCache& cache) {
  return {.q = q.view(),
          .row_offsets = cache.row_offsets(),
          .cache = cache.view(),
          .freqs_cis = freqs.view(),
          .out = out.view()};
}

struct PairCase {
  std::string name;
  bool interleaved;
  std::int64_t rope_dim;
  std::vector<double> expected;  // of the row 1 2 3 4 5 6 7 8 after a quarter turn
};

class RopePairs : public testing::TestWithParam<PairCase> {};

TEST_P(RopePairs, QuarterTurnOfQueryAndKey) {
  const PairCase& c = GetParam();
  const TestCache cache({.cache_lengths = {2}});
  const std::vector<double> row{1, 2, 3, 4, 5, 6, 7, 8};
  for (std::int64_t head = 0; head < 2; ++head)
    encode_row(PagedKvOperand(cache.view().key(0)), 0, head, 2, row);
  const HostTensor q = HostTensor::of(DType::f32, {1, 1, 8}, row);
  const HostTensor out(DType::f32, {1, 1, 8});
  const HostTensor freqs = quarter_turn(3, c.rope_dim);
  RopeArgs args = args_for(q, out, freqs, cache);
  args.interleaved = c.interleaved;
  reference::rope(args);
  EXPECT_EQ(out.values(), c.expected);
  EXPECT_EQ(q.values(), row);
  EXPECT_EQ(decode_row(PagedKvOperand(cache.view().key(0)), 0, 0, 2), c.expected);
  EXPECT_EQ(decode_row(PagedKvOperand(cache.view().key(0)), 0, 1, 2), c.expected);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, RopePairs,
    testing::Values(PairCase{"interleaved", true, 8, {-2, 1, -4, 3, -6, 5, -8, 7}},
                    PairCase{"interleaved_last_four", true, 4, {1, 2, 3, 4, -6, 5, -8, 7}},
                    PairCase{"interleaved_last_two", true, 2, {1, 2, 3, 4, 5, 6, -8, 7}},
                    PairCase{"half_split", false, 8, {-5, -6, -7, -8, 1, 2, 3, 4}},
                    PairCase{"half_split_first_four", false, 4, {-3, -4, 1, 2, 5, 6, 7, 8}},
                    PairCase{"half_split_first_two", false, 2, {-2, 1, 3, 4, 5, 6, 7, 8}}),
    [](const auto& test) { return test.param.name; });

struct PositionCase {
  std::string name;
  CacheOptions cache;
};

class RopePositions : public testing::TestWithParam<PositionCase> {};

TEST_P(RopePositions, RowOfFreqsIsCacheLengthPlusLocalIndex) {
  TestCache cache(GetParam().cache);
  cache.fill_new(1, 17);
  const std::int64_t tokens = cache.num_tokens();
  const HostTensor q = HostTensor::random(DType::f32, {tokens, 3, 8}, 1);
  const HostTensor out(DType::f32, {tokens, 3, 8});
  const HostTensor freqs = row_naming(16, 8);
  RopeArgs args = args_for(q, out, freqs, cache);
  args.layer = 1;
  const PagedKVCache view = cache.view();
  std::vector<std::vector<double>> keys;
  for (const Token& t : tokens_of(cache.row_offsets(), view)) {
    keys.push_back(decode_row(PagedKvOperand(view.key(1)), t.sequence, 1, t.position));
  }
  CacheSnapshot before(cache);
  before.allow_new_tokens(1, KvSide::key);
  reference::rope(args);

  EXPECT_EQ(before.unexpected_changes(), 0);
  for (const Token& t : tokens_of(cache.row_offsets(), view)) {
    const auto factor = static_cast<double>(t.position + 1);
    const auto index = static_cast<std::size_t>(t.index);
    for (std::int32_t d = 0; d < 8; ++d) {
      EXPECT_EQ(out.at({t.index, 2, d}), round_to(DType::f32, factor * q.at({t.index, 2, d})));
      EXPECT_EQ(view.key(1).load(t.sequence, 1, t.position, d),
                round_to(DType::f32, factor * keys[index][static_cast<std::size_t>(d)]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Batches, RopePositions,
    testing::Values(PositionCase{"first_token", {}},
                    PositionCase{"after_a_prefix", {.cache_lengths = {7}, .new_tokens = {3}}},
                    PositionCase{"across_pages", {.cache_lengths = {2, 3}, .new_tokens = {7, 1}}},
                    PositionCase{"with_empty_sequences",
                                 {.cache_lengths = {2, 1, 3}, .new_tokens = {0, 2, 0}}},
                    PositionCase{"heads_first",
                                 {.cache_lengths = {3}, .new_tokens = {4}, .heads_first = true}}),
    [](const auto& test) { return test.param.name; });

TEST(Rope, PositionIdsReplacePositionsButNotTheCacheRow) {
  TestCache cache({.cache_lengths = {5}, .new_tokens = {2}});
  for (std::int64_t token = 5; token < 7; ++token) {
    for (std::int64_t head = 0; head < 2; ++head) {
      encode_row(PagedKvOperand(cache.view().key(0)), 0, head, token, std::vector<double>(8, 1.0));
    }
  }
  const HostTensor q = HostTensor::filled(DType::f32, {2, 1, 8}, 1.0);
  const HostTensor out(DType::f32, {2, 1, 8});
  const HostTensor freqs = row_naming(40, 8);
  const HostTensor ids = HostTensor::of(DType::u32, {1, 2}, {30, 2});
  RopeArgs args = args_for(q, out, freqs, cache);
  args.position_ids = ids.view();
  reference::rope(args);
  EXPECT_EQ(out.at({0, 0, 0}), 31.0);
  EXPECT_EQ(out.at({1, 0, 7}), 3.0);
  EXPECT_EQ(cache.view().key(0).load(0, 1, 5, 0), 31.0);
  EXPECT_EQ(cache.view().key(0).load(0, 1, 6, 0), 3.0);
}

TEST(Rope, SectionsTakeTheirOwnPositionIds) {
  const TestCache cache({.cache_lengths = {0}, .new_tokens = {1}});
  const HostTensor q = HostTensor::filled(DType::f32, {1, 1, 16}, 1.0);
  const HostTensor out(DType::f32, {1, 1, 16});
  const HostTensor freqs = row_naming(100, 16);
  const HostTensor ids = HostTensor::of(DType::u32, {3, 1}, {10, 20, 30});
  RopeArgs args = args_for(q, out, freqs, cache);
  args.rotate_key = false;
  args.interleaved = true;
  args.position_ids = ids.view();
  args.mrope_sections = {1, 3, 2};  // pairs 0 | 1 2 3 | 4 5 | then section 0 again
  reference::rope(args);
  EXPECT_EQ(out.values(),
            (std::vector<double>{11, 11, 21, 21, 21, 21, 21, 21, 31, 31, 31, 31, 11, 11, 11, 11}));
}

TEST(Rope, LatentRowsRotateTheirLastColumns) {
  TestCache cache({.cache_lengths = {1},
                   .new_tokens = {2},
                   .row_format = RowFormat::uniform(DType::bf16, 576),
                   .num_kv_heads = 1,
                   .is_mla = true});
  cache.fill_new(0, 3);
  const HostTensor q = HostTensor::random(DType::bf16, {2, 2, 192}, 1);
  const HostTensor out(DType::bf16, {2, 2, 192});
  const HostTensor freqs = quarter_turn(3, 64);
  RopeArgs args = args_for(q, out, freqs, cache);
  args.interleaved = true;
  const std::vector<double> raw = decode_row(PagedKvOperand(cache.view().key(0)), 0, 0, 2);
  CacheSnapshot before(cache);
  before.allow_new_tokens(0, KvSide::key, 2 * 512);
  reference::rope(args);
  EXPECT_EQ(before.unexpected_changes(), 0);
  const std::vector<double> row = decode_row(PagedKvOperand(cache.view().key(0)), 0, 0, 2);
  EXPECT_EQ(row[512], -raw[513]);
  EXPECT_EQ(row[575], raw[574]);
  EXPECT_EQ(out.at({1, 1, 127}), q.at({1, 1, 127}));
  EXPECT_EQ(out.at({1, 1, 128}), -q.at({1, 1, 129}));
}

TEST(Rope, UnscaledRopePartOfABlockScaledRowIsRotatedAlone) {
  TestCache cache({.row_format = RowFormat::mla_fp8_block(),
                   .num_layers = 1,
                   .num_kv_heads = 1,
                   .is_mla = true});
  cache.fill_new(0, 3);
  const HostTensor q(DType::bf16, {1, 0, 64});
  const HostTensor freqs = quarter_turn(1, 64);
  RopeArgs args = args_for(q, q, freqs, cache);
  args.interleaved = true;
  const std::vector<double> raw = decode_row(PagedKvOperand(cache.view().key(0)), 0, 0, 0);
  CacheSnapshot before(cache);
  before.allow_new_tokens(0, KvSide::key, 528);
  reference::rope(args);
  EXPECT_EQ(before.unexpected_changes(), 0);
  EXPECT_EQ(decode_row(PagedKvOperand(cache.view().key(0)), 0, 0, 0)[512], -raw[513]);
}

TEST(Rope, WithoutRotateKeyTheCacheIsLeftAlone) {
  TestCache cache({.new_tokens = {3}});
  cache.fill_new(0, 1);
  const HostTensor q = HostTensor::random(DType::f32, {3, 2, 8}, 1);
  const HostTensor freqs = quarter_turn(3, 8);
  const CacheSnapshot before(cache);
  RopeArgs args = args_for(q, q, freqs, cache);  // q in place
  args.rotate_key = false;
  const double first = q.at({2, 1, 0});
  reference::rope(args);
  EXPECT_EQ(before.changes(), 0);
  EXPECT_EQ(q.at({2, 1, 4}), first);
}

// mean(x²) of (3, 4, 3, 4, 3, 4, 3, 4) is 12.5; with ε = 3.5 the root is 4, and gamma + offset = 2.
TEST(Rope, NormComesBeforeTheRotation) {
  const TestCache cache({.cache_lengths = {2}});
  const std::vector<double> row{3, 4, 3, 4, 3, 4, 3, 4};
  for (std::int64_t head = 0; head < 2; ++head)
    encode_row(PagedKvOperand(cache.view().key(0)), 0, head, 2, row);
  const HostTensor q = HostTensor::of(DType::f32, {1, 1, 8}, row);
  const HostTensor out(DType::f32, {1, 1, 8});
  const HostTensor freqs = quarter_turn(3, 4);
  const HostTensor gamma = HostTensor::filled(DType::f32, {8}, 1.5);
  RopeArgs args = args_for(q, out, freqs, cache);
  args.interleaved = true;
  args.q_gamma = gamma.view();
  args.key_gamma = gamma.view();
  args.epsilon = 3.5;
  args.weight_offset = 0.5;
  reference::rope(args);
  const std::vector<double> expected{1.5, 2, 1.5, 2, -2, 1.5, -2, 1.5};
  EXPECT_EQ(out.values(), expected);
  EXPECT_EQ(decode_row(PagedKvOperand(cache.view().key(0)), 0, 0, 2), expected);
  EXPECT_EQ(decode_row(PagedKvOperand(cache.view().key(0)), 0, 1, 2), expected);
}

// The norm of the first four columns, the rotation of the last two, and nothing between them.
TEST(Rope, NormOfTheFirstColumnsLeavesAGap) {
  TestCache cache({.cache_lengths = {2}});
  cache.fill_new(0, 3);
  const std::vector<double> raw = decode_row(PagedKvOperand(cache.view().key(0)), 0, 1, 2);
  const HostTensor q(DType::f32, {1, 0, 8});
  const HostTensor freqs = quarter_turn(3, 2);
  const HostTensor gamma = HostTensor::filled(DType::f32, {4}, 1.0);
  RopeArgs args = args_for(q, q, freqs, cache);
  args.interleaved = true;
  args.key_gamma = gamma.view();
  CacheSnapshot before(cache);
  before.allow_new_tokens(0, KvSide::key, 0, 16);
  before.allow_new_tokens(0, KvSide::key, 24, 32);
  reference::rope(args);
  EXPECT_EQ(before.unexpected_changes(), 0);
  const std::vector<double> row = decode_row(PagedKvOperand(cache.view().key(0)), 0, 1, 2);
  double sum = 0.0;
  for (std::size_t i = 0; i < 4; ++i) sum += row[i] * row[i];
  EXPECT_NEAR(sum, 4.0, 1e-4);
  EXPECT_NEAR(row[0] / row[1], raw[0] / raw[1], 1e-5);
  EXPECT_EQ(row[6], -raw[7]);
}

TEST(Rope, UnassignedPagesAreLeftOut) {
  TestCache cache({.cache_lengths = {3}, .new_tokens = {2}});
  cache.fill_new(0, 1);
  cache.unassign(0, 1);
  const HostTensor q = HostTensor::random(DType::f32, {2, 1, 8}, 1);
  const HostTensor freqs = quarter_turn(5, 8);
  CacheSnapshot before(cache);
  before.allow_new_tokens(0, KvSide::key);
  reference::rope(args_for(q, q, freqs, cache));
  EXPECT_EQ(before.unexpected_changes(), 0);
  EXPECT_GT(before.changes(), 0);
}

struct RoundingCase {
  std::string name;
  Arithmetic arithmetic;
  double expected;
};

class RopeRounding : public testing::TestWithParam<RoundingCase> {};

// (1 + 2^-7)² + 2^-8 lies just above a tie of bf16; a product rounded on its own falls onto it.
TEST_P(RopeRounding, RoundsOnceAtTheEnd) {
  const TestCache cache({.row_format = RowFormat::uniform(DType::bf16, 2)});
  const HostTensor q = HostTensor::of(DType::bf16, {1, 1, 2}, {1.0 + 0x1p-7, 1.0});
  const HostTensor out(DType::bf16, {1, 1, 2});
  const HostTensor freqs = HostTensor::of(DType::f32, {1, 2}, {1.0 + 0x1p-7, -0x1p-8});
  RopeArgs args = args_for(q, out, freqs, cache);
  args.rotate_key = false;
  reference::rope(args, GetParam().arithmetic);
  EXPECT_EQ(out.at({0, 0, 0}), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(Modes, RopeRounding,
                         testing::Values(RoundingCase{"exact", Arithmetic::exact,
                                                      1.0 + 0x1p-6 + 0x1p-7},
                                         RoundingCase{"naive", Arithmetic::naive, 1.0 + 0x1p-6}),
                         [](const auto& test) { return test.param.name; });

TEST(Rope, ChunksOfAPromptAgreeWithTheWhole) {
  const HostTensor q = HostTensor::random(DType::f32, {6, 2, 8}, 9);
  const HostTensor freqs = angles(6, 8);
  const TestCache whole({.cache_lengths = {0}, .new_tokens = {6}});
  const TestCache rest({.cache_lengths = {4}, .new_tokens = {2}});
  const HostTensor out(DType::f32, {6, 2, 8});
  const HostTensor tail(DType::f32, {2, 2, 8});
  HostTensor last_two(DType::f32, {2, 2, 8});
  for (std::int64_t i = 0; i < 32; ++i) {
    store_element(last_two.view().data, DType::f32, i,
                  load_element(q.view().data, DType::f32, 64 + i));
  }
  RopeArgs args = args_for(q, out, freqs, whole);
  args.rotate_key = false;
  reference::rope(args);
  RopeArgs tail_args = args_for(last_two, tail, freqs, rest);
  tail_args.rotate_key = false;
  reference::rope(tail_args);
  for (std::int64_t d = 0; d < 8; ++d) {
    EXPECT_EQ(tail.at({0, 1, d}), out.at({4, 1, d}));
    EXPECT_EQ(tail.at({1, 0, d}), out.at({5, 0, d}));
  }
  // A rotation keeps lengths: |out|² = |q|².
  double before = 0.0;
  double after = 0.0;
  for (std::int64_t d = 0; d < 8; ++d) {
    before += q.at({5, 0, d}) * q.at({5, 0, d});
    after += out.at({5, 0, d}) * out.at({5, 0, d});
  }
  EXPECT_NEAR(after, before, 1e-6);
}

}  // namespace
}  // namespace quire::reference
