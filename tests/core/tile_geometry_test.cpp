// SPDX-License-Identifier: Apache-2.0
#include "quire/tile_geometry.h"

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(SwizzleGranularity, NoSwizzleIsSixteenBytesNotZero) {
  EXPECT_EQ(swizzle_granularity(DType::bf16, Swizzle::none), 8);
  EXPECT_EQ(swizzle_granularity(DType::fp8_e4m3, Swizzle::none), 16);
  EXPECT_EQ(swizzle_granularity(DType::f32, Swizzle::none), 4);
}

TEST(SwizzleGranularity, SpansDoublePerMode) {
  EXPECT_EQ(swizzle_granularity(DType::bf16, Swizzle::b32), 16);
  EXPECT_EQ(swizzle_granularity(DType::bf16, Swizzle::b64), 32);
  EXPECT_EQ(swizzle_granularity(DType::bf16, Swizzle::b128), 64);
  EXPECT_EQ(swizzle_granularity(DType::fp8_e4m3, Swizzle::b128), 128);
}

TEST(PaddedDepth, RoundsUpToWholeGranules) {
  EXPECT_EQ(padded_depth(DType::bf16, Swizzle::b128, 64), 64);
  EXPECT_EQ(padded_depth(DType::bf16, Swizzle::b128, 80), 128);
  EXPECT_EQ(padded_depth(DType::fp8_e4m3, Swizzle::b64, 576), 576);
  EXPECT_EQ(padded_depth(DType::fp8_e4m3, Swizzle::b128, 576), 640);
  EXPECT_EQ(depth_chunks(DType::bf16, Swizzle::b128, 80), 2);
}

TEST(SubTile, CoversTheTileOrOnePage) {
  EXPECT_EQ(kv_sub_tile_rows(128, 0), 128);
  EXPECT_EQ(kv_sub_tile_rows(128, 128), 128);
  EXPECT_EQ(kv_sub_tile_rows(128, 256), 128);
  EXPECT_EQ(kv_sub_tile_rows(128, 16), 16);
}

TEST(SubTile, CountIsZeroWhereTileAndPageDoNotDivide) {
  EXPECT_EQ(kv_num_sub_tiles(128, 48), 0);
  EXPECT_EQ(kv_num_sub_tiles(96, 128), 0);
  EXPECT_EQ(kv_num_sub_tiles(192, 64), 3);
  EXPECT_EQ(kv_num_sub_tiles(64, 256), 1);
  EXPECT_EQ(kv_num_sub_tiles(64, 0), 1);
  EXPECT_EQ(kv_num_sub_tiles(0, 16), 0);
}

TEST(ValidPages, PartialLastTileCountsOnlyPagesWithKeys) {
  // 584 keys, pages of 64, tiles of 192: the last tile starts at 576 and has 8 keys in 1 of its 3
  // pages.
  EXPECT_EQ(valid_pages(576, 584, 192, 64), 1);
  EXPECT_EQ(valid_pages(384, 584, 192, 64), 3);
  EXPECT_EQ(valid_pages(0, 65, 192, 64), 2);
  EXPECT_EQ(valid_pages(0, 64, 192, 64), 1);
}

TEST(ValidPages, NothingIsValidAtOrPastTheEnd) {
  EXPECT_EQ(valid_pages(192, 192, 192, 64), 0);
  EXPECT_EQ(valid_pages(256, 192, 128, 64), 0);
}

TEST(ValidPages, HugeRemaindersDoNotOverflow) {
  EXPECT_EQ(valid_pages(0, std::int64_t{1} << 40, 128, 16), 8);
}

TEST(ValidPages, TileInsideOnePageIsWholeOrNothing) {
  EXPECT_EQ(valid_pages(64, 65, 64, 256), 1);
  EXPECT_EQ(valid_pages(64, 64, 64, 256), 0);
}

TEST(PageTable, PaddedColumnsHoldTheWidestTileAtTheLastColumn) {
  EXPECT_EQ(padded_table_columns(0), 16);
  EXPECT_EQ(padded_table_columns(1), 24);
  EXPECT_EQ(padded_table_columns(8), 24);
  EXPECT_EQ(padded_table_columns(9), 32);
  for (std::int64_t columns = 0; columns < 100; ++columns) {
    EXPECT_EQ(padded_table_columns(columns) % 8, 0);
    EXPECT_GE(padded_table_columns(columns), columns + 16);
  }
}

}  // namespace
}  // namespace quire
