// SPDX-License-Identifier: Apache-2.0
#include "reference/mla_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "quire/element.h"
#include "quire/paged_kv_operand.h"
#include "reference/row_codec.h"
#include "support/attention_inputs.h"

namespace quire::reference {
namespace {

using test::HostTensor;
using test::kTestLayer;
using test::MlaInputs;
using test::MlaShape;

MlaNewRows new_rows(const MlaInputs& inputs) {
  return {.row_offsets = inputs.cache.row_offsets(),
          .cache = inputs.cache.view(),
          .layer = kTestLayer,
          .freqs_cis = inputs.freqs_cis.view(),
          .kv_norm_gamma = inputs.gamma.view(),
          .kv = inputs.kv.view(),
          .epsilon = 1e-6};
}

std::vector<double> cache_row(const MlaInputs& inputs, std::int64_t sequence, std::int64_t token) {
  return decode_row(PagedKvOperand(inputs.cache.view().key(kTestLayer)), sequence, 0, token);
}

TEST(RotateTailTest, turns_interleaved_pairs_of_the_last_columns) {
  // Position 1 turns the first pair by 90°, the second by 180°.
  const HostTensor freqs = HostTensor::of(DType::f32, {2, 4}, {1, 0, 1, 0, 0, 1, -1, 0});
  std::vector<double> row{5, 6, 1, 2, 3, 4};
  rotate_tail(row, freqs.view(), 1);
  EXPECT_EQ(row, (std::vector<double>{5, 6, -2, 1, -3, -4}));
  rotate_tail(row, freqs.view(), 0);
  EXPECT_EQ(row, (std::vector<double>{5, 6, -2, 1, -3, -4}));
}

TEST(RotateTailTest, keeps_lengths) {
  const HostTensor freqs = test::make_freqs(DType::f32, 50, 2);
  std::vector<double> row{3, 4};
  rotate_tail(row, freqs.view(), 49);
  EXPECT_NEAR(std::hypot(row[0], row[1]), 5.0, 1e-6);
  EXPECT_NEAR(row[0], 3 * std::cos(49.0) - 4 * std::sin(49.0), 1e-5);
}

TEST(FinishRowsTest, normalises_and_rotates_the_new_rows) {
  const MlaInputs inputs({.cache_lengths = {3, 6}, .new_tokens = {2, 1}}, {});
  finish_rows(new_rows(inputs));
  for (const auto& [sequence, position, token] : {std::tuple{0, 3, 0}, {0, 4, 1}, {1, 6, 2}}) {
    const std::vector<double> row = cache_row(inputs, sequence, position);
    double squares = 0.0;
    for (int i = 0; i < 6; ++i) squares += std::pow(inputs.kv.at({token, i}), 2);
    for (int i = 0; i < 6; ++i) {
      const double normal = inputs.kv.at({token, i}) / std::sqrt(squares / 6 + 1e-6);
      EXPECT_NEAR(row[static_cast<std::size_t>(i)], normal * inputs.gamma.at({i}), 1e-6);
    }
    const double a = inputs.kv.at({token, 6});
    const double b = inputs.kv.at({token, 7});
    EXPECT_NEAR(row[6], a * std::cos(position) - b * std::sin(position), 1e-6);
    EXPECT_NEAR(row[7], a * std::sin(position) + b * std::cos(position), 1e-6);
  }
}

TEST(FinishRowsTest, in_place_equals_rows_handed_over) {
  const test::CacheOptions options{.cache_lengths = {3, 6}, .new_tokens = {2, 1}};
  const MlaInputs handed(options, {});
  finish_rows(new_rows(handed));

  const MlaInputs in_place(options, {});
  MlaNewRows rows = new_rows(in_place);
  rows.freqs_cis.reset();
  rows.kv_norm_gamma.reset();
  finish_rows(rows);  // stores the raw rows as they are
  EXPECT_EQ(cache_row(in_place, 0, 4)[2], in_place.kv.at({1, 2}));
  rows = new_rows(in_place);
  rows.kv.reset();
  finish_rows(rows);
  EXPECT_EQ(in_place.cache.block_bytes(), handed.cache.block_bytes());
}

TEST(FinishRowsTest, touches_nothing_but_the_new_rows) {
  const MlaInputs inputs({.cache_lengths = {5}, .new_tokens = {2}}, {});
  const std::vector<std::byte> before = inputs.cache.block_bytes();
  finish_rows(new_rows(inputs));
  const std::vector<std::byte>& after = inputs.cache.block_bytes();
  std::size_t changed = 0;
  const auto first = inputs.cache.row_offset_bytes(kTestLayer, false, 0, 0, 5);
  const auto second = inputs.cache.row_offset_bytes(kTestLayer, false, 0, 0, 6);
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (after[i] == before[i]) continue;
    const auto offset = static_cast<std::int64_t>(i);
    EXPECT_TRUE((offset >= first && offset < first + 32) ||
                (offset >= second && offset < second + 32));
    ++changed;
  }
  EXPECT_GT(changed, 0u);
}

TEST(FinishRowsTest, without_frequencies_gamma_and_rows_is_nothing) {
  const MlaInputs inputs({.cache_lengths = {5}, .new_tokens = {2}}, {});
  const std::vector<std::byte> before = inputs.cache.block_bytes();
  MlaNewRows rows = new_rows(inputs);
  rows.freqs_cis.reset();
  rows.kv_norm_gamma.reset();
  rows.kv.reset();
  finish_rows(rows);
  EXPECT_EQ(inputs.cache.block_bytes(), before);
}

TEST(FinishRowsTest, drops_rows_without_a_page) {
  MlaInputs inputs({.cache_lengths = {4}, .new_tokens = {2}}, {});
  inputs.cache.unassign(0, 1);
  const std::vector<std::byte> before = inputs.cache.block_bytes();
  finish_rows(new_rows(inputs));
  EXPECT_EQ(inputs.cache.block_bytes(), before);
}

TEST(FinishRowsTest, rounds_to_gammas_dtype_before_and_after_gamma) {
  const MlaShape shape{.latent = 2, .row_format = RowFormat::uniform(DType::f32, 4)};
  MlaInputs inputs({.cache_lengths = {0}, .new_tokens = {1}}, shape);
  inputs.kv = HostTensor::of(DType::f32, {1, 4}, {1.0, 0.7, 0, 0});
  const double gamma = 1.0 + 0x1p-7;
  inputs.gamma = HostTensor::of(DType::bf16, {2}, {gamma, gamma});
  finish_rows(new_rows(inputs));
  const std::vector<double> row = cache_row(inputs, 0, 0);
  for (std::size_t i = 0; i < 2; ++i) {
    const double x = inputs.kv.values()[i];
    const double mean = (1.0 + std::pow(inputs.kv.values()[1], 2)) / 2;
    const double once = round_to(DType::bf16, x / std::sqrt(mean + 1e-6));
    EXPECT_EQ(row[i], round_to(DType::bf16, once * gamma));
  }
}

class FinishRowsFormatTest : public testing::TestWithParam<RowFormat> {};

TEST_P(FinishRowsFormatTest, stores_close_to_the_bf16_twin) {
  MlaShape shape{.heads = 1, .rope = 64, .latent = 512};
  const test::CacheOptions options{.cache_lengths = {1}, .new_tokens = {2}};
  const MlaInputs twin(options, shape, DType::bf16);
  shape.row_format = GetParam();
  const MlaInputs inputs(options, shape, DType::bf16);
  finish_rows(new_rows(twin));
  finish_rows(new_rows(inputs));
  for (std::int64_t token = 0; token < 3; ++token) {
    const std::vector<double> expected = cache_row(twin, 0, token);
    const std::vector<double> row = cache_row(inputs, 0, token);
    ASSERT_EQ(row.size(), 576u);
    for (std::size_t i = 0; i < row.size(); ++i) {
      EXPECT_NEAR(row[i], expected[i], std::abs(expected[i]) * 0x1p-3 + 0x1p-8) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, FinishRowsFormatTest,
                         testing::Values(RowFormat::uniform(DType::fp8_e4m3, 576),
                                         RowFormat::mla_fp8_token(), RowFormat::mla_fp8_block()),
                         [](const auto& info) {
                           return "bytes_" + std::to_string(info.param.row_bytes);
                         });

TEST(RotateQueriesTest, turns_the_rope_columns_in_place_and_no_others) {
  const MlaInputs inputs({.cache_lengths = {2, 0}, .new_tokens = {1, 2}}, {});
  const HostTensor before = inputs.q;
  rotate_queries(inputs.q.view(), new_rows(inputs));
  const int positions[] = {2, 0, 1};
  for (int token = 0; token < 3; ++token) {
    for (int head = 0; head < 2; ++head) {
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(inputs.q.at({token, head, i}), before.at({token, head, i}));
      }
      const double a = before.at({token, head, 4});
      const double b = before.at({token, head, 5});
      const double angle = positions[token];
      EXPECT_NEAR(inputs.q.at({token, head, 4}), a * std::cos(angle) - b * std::sin(angle), 1e-6);
      EXPECT_NEAR(inputs.q.at({token, head, 5}), a * std::sin(angle) + b * std::cos(angle), 1e-6);
    }
  }
}

}  // namespace
}  // namespace quire::reference
