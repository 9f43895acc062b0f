// SPDX-License-Identifier: Apache-2.0
// What the checks must let through: the other side of the bad-input table.
#include <gtest/gtest.h>

#include <limits>

#include "ops/sample_attention.h"
#include "ops/sample_cache_ops.h"
#include "ops/sample_qkv.h"
#include "ops/sample_row_ops.h"
#include "quire/error.h"

namespace quire::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(AcceptedTest, OutMayBeTheInputWhereTheHeaderSaysSo) {
  RopeSample rope;
  rope.args.out = rope.args.q;
  EXPECT_NO_THROW(rope.run({}));
  RemapSparseIndicesSample remap;
  remap.args.out = remap.args.indices;
  EXPECT_NO_THROW(remap.run({}));
  EXPECT_EQ(remap.args.out.load({0, 0}), 16.0);  // position 0 on page 4
}

TEST(AcceptedTest, OutputsMayInterleaveWithInputsInOneBuffer) {
  FlashAttentionSample sample;
  const TensorView buffer = sample.arena.random(DType::bf16, {kTokens, 8, 8});
  sample.args.q = sample.args.out = buffer;
  sample.args.q.shape[1] = sample.args.out.shape[1] = 4;
  sample.args.out.data = buffer.as<std::byte>() + 4 * 8 * 2;
  EXPECT_NO_THROW(sample.run({}));
}

// K and V alone. An output without elements has no two in one place, whatever its strides are.
TEST(AcceptedTest, AnEmptyQOfSeveralTokens) {
  FusedQkvSample sample;
  sample.args.weight.data.shape[0] = kQkvRows - kQDim;
  sample.args.bias->shape[0] = kQkvRows - kQDim;
  sample.args.out = TensorView::contiguous(nullptr, DType::bf16, {kTokens, 0});
  EXPECT_EQ(sample.args.out.strides[0], 0);
  EXPECT_NO_THROW(sample.run({}));
}

TEST(AcceptedTest, UnassignedPagesUnderNeededKeys) {
  for (const double sentinel : {6.0, 4294967295.0}) {
    FlashAttentionSample sample;
    sample.args.cache.page_table.store({0, 1}, sentinel);
    EXPECT_NO_THROW(sample.run({}));
  }
}

// One bound for all tokens, as a view that repeats it.
TEST(AcceptedTest, KeyIntervalsOfStrideZero) {
  FlashAttentionIntervalsSample sample;
  sample.begin.strides[0] = sample.end.strides[0] = 0;
  sample.begin.store({0}, 1);
  sample.end.store({0}, 1);
  sample.args.sinks.reset();
  EXPECT_NO_THROW(sample.run({}));
  for (std::int64_t token = 0; token < kTokens; ++token) {
    EXPECT_EQ(sample.args.out.load({token, 3, 7}), 0.0);
    EXPECT_EQ(sample.args.lse->load({token, 3}), -std::numeric_limits<double>::infinity());
  }
}

TEST(AcceptedTest, HeadsFirstPoolsAndTheirDensity) {
  FlashAttentionSample sample;
  auto& strides = sample.args.cache.blocks.strides;
  strides[3] = 8;      // token
  strides[4] = 4 * 8;  // head
  EXPECT_NO_THROW(sample.run({}));
  EXPECT_FALSE(validate(sample.args).cache.rows_are_dense);
}

TEST(AcceptedTest, AStaticScaleIsReadOnlyWhereKeysMeetIt) {
  StoreSample sample;
  auto& scales = *sample.args.cache.scales;
  scales.strides[3] = 0;                            // one scale per page, head and slot
  scales.store({0, 0, kLayer, 0, 0, 0}, kNan);      // page 0 belongs to nobody
  scales.store({4, 0, kLayer - 1, 0, 0, 0}, kNan);  // another layer
  scales.store({4, 1, kLayer, 0, 0, 0}, kNan);      // V, and K is stored
  const Arena::Snapshot before = sample.arena.snapshot();
  ASSERT_NO_THROW(sample.run({}));
  const std::size_t index = sample.arena.index_of(scales);
  EXPECT_TRUE(before[index] == sample.arena.snapshot()[index]) << "a static scale was written";
}

TEST(AcceptedTest, RopeOnTheUnscaledPartOfAMixedRow) {
  RopeSample sample;
  const RowFormat format = RowFormat::mla_fp8_block(8, 6, 4);
  sample.args.cache =
      make_cache(sample.arena, {.dtype = DType::u8, .kv = 1, .heads = 1, .row = format.row_bytes});
  sample.args.cache.row_format = format;
  sample.args.interleaved = true;  // the last six columns: bf16 without scales
  EXPECT_NO_THROW(sample.run({}));
  sample.args.interleaved = false;  // the first six: fp8 with scales
  EXPECT_THROW(sample.run({}), Error);
}

TEST(AcceptedTest, ANormOverTheWholeToken) {
  RmsNormKeySample sample;
  sample.args.per_head = false;
  sample.args.gamma = sample.arena.random(DType::bf16, {2 * 8});
  EXPECT_NO_THROW(sample.run({}));
  EXPECT_EQ(validate(sample.args).columns, 16);
}

TEST(AcceptedTest, CodesOfTheCachesOwnDtypeAreStoredAsTheyAre) {
  StoreSample sample;
  sample.args.x = sample.arena.random(DType::fp8_e4m3, {kTokens, 2, 8});
  ASSERT_NO_THROW(sample.run({}));
  const KvLayerView key = sample.args.cache.key(kLayer);
  EXPECT_EQ(key.load_quantized(0, 1, 3, 5), sample.args.x.load({0, 1, 5}));
  EXPECT_EQ(key.load_scale(0, 1, 3, 5), 0.125);
}

TEST(AcceptedTest, AnInfiniteBoundOfScalesAndAGroupWiderThanTheRow) {
  QuantizeFp8Sample sample;
  sample.args.scale_upper_bound = std::numeric_limits<double>::infinity();
  sample.args.group_size = 128;
  sample.args.scale.shape[1] = 1;
  EXPECT_NO_THROW(sample.run({}));
}

TEST(AcceptedTest, SequencesWithoutNewTokensNeedNoFrequencies) {
  RopeSample sample;
  sample.args.row_offsets = sample.arena.of(DType::u32, {3}, {0, 0, 3});
  for (TensorView* view : {&sample.args.q, &sample.args.out}) view->shape[0] = 3;
  sample.args.cache.cache_lengths.store({0}, 5);
  sample.args.freqs_cis.shape[0] = 3;  // sequence 0 holds 5 keys and gets none, sequence 1 gets 3
  EXPECT_NO_THROW(sample.run({}));
}

TEST(AcceptedTest, ATreeMaskAndAllScoreModifiers) {
  FlashAttentionSample sample;
  const TensorView bits = sample.arena.filled(DType::u8, {kTokens, 3}, 1);
  sample.args.mask = (Mask::tree(bits) & Mask::sliding_window(4)) | Mask::chunked(2);
  sample.args.softcap = 20.0;
  EXPECT_NO_THROW(sample.run({}));
}

}  // namespace
}  // namespace quire::test
