// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "ops/arena.h"
#include "ops/sample_latent.h"
#include "quire/error.h"

namespace quire::test {
namespace {

TEST(AbsorbKvBProjTest, ViewsBothBandsOfEveryHead) {
  Arena arena;
  const TensorView kv_b_proj = arena.random(DType::bf16, {3 * (6 + 5), 8});
  const AbsorbedWeights weights = absorb_kv_b_proj(kv_b_proj, 3, 6);
  EXPECT_EQ(weights.w_uk.describe(), "bf16[3, 8, 6]");
  EXPECT_EQ(weights.w_uv.describe(), "bf16[3, 5, 8]");
  EXPECT_FALSE(weights.w_uk_scale.has_value());
  for (std::int64_t head = 0; head < 3; ++head) {
    for (std::int64_t latent = 0; latent < 8; ++latent) {
      for (std::int64_t n = 0; n < 6; ++n) {
        EXPECT_EQ(weights.w_uk.load({head, latent, n}), kv_b_proj.load({head * 11 + n, latent}));
      }
      for (std::int64_t v = 0; v < 5; ++v) {
        EXPECT_EQ(weights.w_uv.load({head, v, latent}),
                  kv_b_proj.load({head * 11 + 6 + v, latent}));
      }
    }
  }
}

TEST(AbsorbKvBProjTest, ViewsTheBlockScales) {
  Arena arena;
  const TensorView kv_b_proj = arena.random(DType::fp8_e4m3, {2 * (128 + 256), 200});
  const TensorView scale = arena.random(DType::f32, {6, 2});
  const AbsorbedWeights weights = absorb_kv_b_proj(kv_b_proj, 2, 128, scale);
  EXPECT_EQ(weights.w_uk_scale->describe(), "f32[2, 2, 1]");
  EXPECT_EQ(weights.w_uv_scale->describe(), "f32[2, 2, 2]");
  EXPECT_EQ(weights.w_uk_scale->load({1, 1, 0}), scale.load({3, 1}));
  EXPECT_EQ(weights.w_uv_scale->load({1, 1, 0}), scale.load({5, 0}));
}

TEST(AbsorbKvBProjTest, GivesMlaDecodeWhatItTakes) {
  MlaDecodeSample sample;
  const TensorView kv_b_proj = sample.arena.random(DType::bf16, {3 * (6 + 5), 8});
  const AbsorbedWeights weights = absorb_kv_b_proj(kv_b_proj, 3, 6);
  sample.args.w_uk = weights.w_uk;
  sample.args.w_uv = weights.w_uv;
  sample.args.w_uk_scale.reset();
  sample.args.w_uv_scale.reset();
  EXPECT_NO_THROW(sample.run({}));
}

TEST(AbsorbKvBProjTest, RefusesHeadsThatDoNotDivide) {
  Arena arena;
  const TensorView kv_b_proj = arena.random(DType::bf16, {33, 8});
  const TensorView fp8 = arena.random(DType::fp8_e4m3, {33, 8});
  const TensorView scale = arena.filled(DType::f32, {1, 1}, 1.0);
  EXPECT_THROW(absorb_kv_b_proj(kv_b_proj, 4, 6), Error);
  EXPECT_THROW(absorb_kv_b_proj(kv_b_proj, 3, 11), Error);
  EXPECT_THROW(absorb_kv_b_proj(kv_b_proj, 0, 6), Error);
  EXPECT_THROW(absorb_kv_b_proj(kv_b_proj, 3, 0), Error);
  EXPECT_THROW(absorb_kv_b_proj(fp8, 3, 6), Error);         // without its scale
  EXPECT_THROW(absorb_kv_b_proj(fp8, 3, 6, scale), Error);  // blocks that heads share
}

TEST(MlaPrefillNumChunksTest, CountsWholePages) {
  MlaPrefillPlanSample sample;  // 5 and 3 keys in pages of 4: 8 + 4 rows
  EXPECT_EQ(mla_prefill_num_chunks(sample.args.row_offsets, sample.args.cache, 12), 1);
  EXPECT_EQ(mla_prefill_num_chunks(sample.args.row_offsets, sample.args.cache, 11), 2);
  EXPECT_EQ(mla_prefill_num_chunks(sample.args.row_offsets, sample.args.cache, 1), 12);
  EXPECT_EQ(mla_prefill_num_chunks(sample.args.row_offsets, sample.args.cache, 1, 8), 0);
  EXPECT_THROW(mla_prefill_num_chunks(sample.args.row_offsets, sample.args.cache, 0), Error);
}

// There the lengths are not read: tables of 2 sequences, full to the last column.
TEST(MlaPrefillNumChunksTest, OnADeviceSufficesForFullTables) {
  MlaPrefillPlanSample sample;
  const std::int64_t most = 2 * sample.args.cache.max_pages() * 4;
  sample.move_to_gpu();
  const auto chunks = [&](std::int64_t buffer_tokens) {
    return mla_prefill_num_chunks(sample.args.row_offsets, sample.args.cache, buffer_tokens);
  };
  EXPECT_EQ(chunks(1), most);
  EXPECT_EQ(chunks(most - 1), 2);
  EXPECT_EQ(chunks(most), 1);
  EXPECT_EQ(chunks(most + 1), 1);
  EXPECT_THROW(chunks(0), Error);
}

TEST(MlaPrefillNumChunksTest, IsWhatThePlanNeeds) {
  MlaPrefillPlanSample sample;
  for (const std::int64_t buffer_tokens : {4, 5, 6, 11, 12, 100}) {
    sample.args.chunks.buffer_tokens = buffer_tokens;
    const std::int64_t needed =
        mla_prefill_num_chunks(sample.args.row_offsets, sample.args.cache, buffer_tokens);
    sample.run({});
    std::int64_t used = 0;
    for (std::int64_t c = 0; c < 3; ++c) used += sample.args.chunks.buffer_lengths.load({c}) > 0;
    EXPECT_EQ(used, needed) << buffer_tokens;
  }
}

}  // namespace
}  // namespace quire::test
