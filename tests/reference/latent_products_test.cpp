// SPDX-License-Identifier: Apache-2.0
#include "reference/latent_products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "quire/paged_kv_operand.h"
#include "support/cache_builder.h"

namespace quire::reference {
namespace {

constexpr std::int32_t kLatent = 256;
constexpr std::int32_t kRope = 2;

// 66 keys of one sequence, two tiles; all zeros, all scales 1.
struct Keys {
  explicit Keys(const RowFormat& format)
      : cache({.cache_lengths = {66},
               .new_tokens = {0},
               .row_format = format,
               .num_layers = 1,
               .num_kv_heads = 1,
               .is_mla = true}) {
    for (std::int64_t key = 0; key < 66; ++key) {
      for (std::int32_t column = 0; column < kLatent + kRope; ++column) {
        set(key, column, 0.0);
        set_scale(key, column, 1.0);
      }
    }
  }

  PagedKvOperand operand() const { return PagedKvOperand(cache.view().key(0)); }
  void set(std::int64_t key, std::int32_t column, double code) const {
    const PagedKvOperand rows = operand();
    rows.layout().store(KvOperandRef(rows).row(0, 0, key), column, code);
  }
  void set_scale(std::int64_t key, std::int32_t column, double scale) const {
    const PagedKvOperand rows = operand();
    rows.layout().store_scale(KvOperandRef(rows).row(0, 0, key), column, scale);
  }
  LatentProducts products(Arithmetic arithmetic) const {
    return {operand(), 0, 66, kLatent, arithmetic};
  }

  test::TestCache cache;
};

Keys block_rows() {
  return Keys(RowFormat::mla_fp8_block(kLatent, kRope));
}

TEST(LatentProductsTest, take_latents_of_e4m3) {
  EXPECT_TRUE(LatentProducts::take(RowFormat::mla_fp8_token(), 512));
  EXPECT_TRUE(LatentProducts::take(RowFormat::uniform(DType::fp8_e4m3, 576), 512));
  EXPECT_FALSE(LatentProducts::take(RowFormat::mla_fp8_token(), 514));
  EXPECT_FALSE(LatentProducts::take(RowFormat::uniform(DType::fp8_e5m2, 576), 512));
  EXPECT_FALSE(LatentProducts::take(RowFormat::uniform(DType::bf16, 576), 512));
}

// Largest numbers 3 · 2^6, 0.01 · 2^14 and, of the rope columns, 0.1 · 2^11.
TEST(LatentProductsTest, queries_are_rounded_in_groups_of_128) {
  std::vector<double> q(kLatent + kRope, 0.0);
  q[5] = 3.0, q[100] = 0.1, q[128] = 0.01, q[kLatent] = 0.1;
  const std::vector<double> mixed = block_rows().products(Arithmetic::naive).round_query(q);
  EXPECT_EQ(mixed[5], 3.0);
  EXPECT_EQ(mixed[100], 6.5 / 64);
  EXPECT_EQ(mixed[128], 160.0 / 16384);
  EXPECT_EQ(mixed[kLatent], 0.1);  // rope columns of bf16
  const Keys uniform(RowFormat::uniform(DType::fp8_e4m3, kLatent + kRope));
  EXPECT_EQ(uniform.products(Arithmetic::naive).round_query(q)[kLatent], 208.0 / 2048);
}

// The product 2^-14 of the largest is dropped, and kept beside another block of columns or in bf16.
TEST(LatentProductsTest, random_evaluations_sum_128_columns_with_13_bits) {
  const Keys keys = block_rows();
  for (const std::int32_t column : {0, 1, 128, kLatent}) keys.set(7, column, 1.0);
  keys.set_scale(7, 0, 3.0);
  std::vector<double> q(kLatent + kRope, 0.0);
  q[0] = 1.0, q[1] = 0x1p-14, q[128] = 0x1p-15, q[kLatent] = 0x1p-16;
  const std::int64_t seen[] = {7};
  const double kept = 3.0 + 0x1p-15 + 0x1p-16;
  EXPECT_EQ(keys.products(Arithmetic::naive).scores(q, seen).front(), kept + 3.0 * 0x1p-14);
  EXPECT_EQ(keys.products(Arithmetic::random(0)).scores(q, seen).front(), kept);
}

// Weights of 256, 76.8 and 179.2, the last one in another tile. Scales 1, 3 and 0.5 of the first 128 columns are folded
// in as 1/4, 3/4 and 1: the powers of two of the tiles are 4 and 0.5.
TEST(LatentProductsTest, weights_take_the_scales_in) {
  const Keys keys = block_rows();
  keys.set(0, 0, 1.0), keys.set(1, 0, 2.0), keys.set(64, 0, 4.0);
  keys.set_scale(1, 0, 3.0), keys.set_scale(64, 0, 0.5), keys.set_scale(65, 0, 0.5);
  for (const std::int64_t key : {0, 1, 64}) keys.set(key, 128, 1.0);
  const std::int64_t seen[] = {0, 1, 64};
  const double scores[] = {0.0, std::log(0.3), std::log(0.7)};
  const LatentProducts products = keys.products(Arithmetic::naive);
  const AttentionRow row = products.attend(scores, seen, WeightRounding::e4m3, DType::f32);
  EXPECT_NEAR(row.out[0], (4 * (64 * 1 + 56 * 2) + 0.5 * 176 * 4) / 512, 1e-6);
  EXPECT_NEAR(row.out[128], (256 + 80 + 176) / 512.0, 1e-6);
  EXPECT_NEAR(row.lse, std::log(2.0), 1e-6);
  const AttentionRow pairs =
      products.attend(scores, seen, WeightRounding::e4m3_and_e5m2, DType::f32);
  EXPECT_NEAR(pairs.out[0], (4 * (64 * 1 + 57.5 * 2) + 0.5 * 179 * 4) / 512, 1e-6);
  EXPECT_NEAR(pairs.lse, std::log(2.0), 1e-6);
}

// 2^-14 of the largest product is dropped among 64 keys, and kept in the next tile.
TEST(LatentProductsTest, random_evaluations_sum_64_keys_with_13_bits) {
  const Keys keys = block_rows();
  for (const std::int64_t key : {0, 63, 64}) keys.set(key, 0, 1.0);
  const double scores[] = {0.0, std::log(0x1p-14)};
  const auto attend = [&](Arithmetic arithmetic, std::int64_t second) {
    const std::int64_t seen[] = {0, second};
    return keys.products(arithmetic)
        .attend(scores, seen, WeightRounding::e4m3, DType::f32)
        .out.front();
  };
  EXPECT_NEAR(attend(Arithmetic::naive, 63), 1.0, 1e-6);
  EXPECT_NEAR(attend(Arithmetic::random(1), 63), 1.0 - 0x1p-14, 1e-6);
  EXPECT_NEAR(attend(Arithmetic::random(1), 64), 1.0, 1e-6);
}

TEST(LatentProductsTest, zero_and_nan_scales_reach_their_own_columns) {
  const Keys keys = block_rows();
  keys.set(0, 0, 1.0), keys.set(0, 128, 1.0), keys.set(1, 128, 1.0);
  for (std::int32_t key = 0; key < 66; ++key) keys.set_scale(key, 0, 0.0);
  keys.set_scale(1, 128, std::nan(""));
  const std::int64_t seen[] = {0, 1};
  const double scores[] = {0.0, 0.0};
  const LatentProducts products = keys.products(Arithmetic::naive);
  const AttentionRow row = products.attend(scores, seen, WeightRounding::e4m3, DType::f32);
  EXPECT_EQ(row.out[0], 0.0);
  EXPECT_TRUE(std::isnan(row.out[128]));
}

}  // namespace
}  // namespace quire::reference
