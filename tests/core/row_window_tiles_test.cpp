// SPDX-License-Identifier: Apache-2.0
// Tiles over parts of mixed rows, gathered rows and scales, executed on host memory.
#include <cstring>
#include <numeric>
#include <vector>

#include "cache_storage.h"
#include "gtest/gtest.h"
#include "quire/error.h"
#include "quire/paged_kv_operand.h"
#include "quire/tile_builders.h"
#include "tile_simulator.h"

namespace quire {
namespace {

using testing::CacheStorage;
using testing::TileSimulator;
using testing::words;

// 640-byte latent rows: 512 fp8, then 64 bf16. MLA: K only, 2 layers, pages of 8, of which the
// sequence has number 2.
class MixedRows : public ::testing::Test {
 protected:
  MixedRows()
      : storage_({.pages = 4,
                  .kv = 1,
                  .layers = 2,
                  .page_size = 8,
                  .row = 640,
                  .dtype = DType::fp8_e4m3},
                 1, 1, 2),
        view_(storage_.cache.key(1)),
        operand_(view_),
        simulator_(storage_.bytes(), view_.data) {}

  std::int64_t first_row() const { return 2 * operand_.rows_per_page_stride(); }
  // `count` bytes that start at `first` of a row; zeros for row -1.
  std::vector<std::byte> bytes_of(std::int64_t row, int first, int count) const {
    if (row < 0) return std::vector<std::byte>(static_cast<std::size_t>(count));
    const std::byte* start = view_.data + row * 640 + first;
    return {start, start + count};
  }
  std::vector<std::byte> line(const std::vector<std::byte>& smem, int index, int width) const {
    return {smem.begin() + index * width, smem.begin() + (index + 1) * width};
  }

  CacheStorage storage_;
  KvLayerView view_;
  PagedKvOperand operand_;
  TileSimulator simulator_;
};

TEST_F(MixedRows, ContentTileStopsBeforeTheRopeTail) {
  const RowMatrix content = columns_as(operand_.row_matrix(), DType::fp8_e4m3, 0, 512);
  const TileDescriptor tile = make_tile(content, {.swizzle = Swizzle::b64, .box_rows = 8});
  validate_descriptor(tile);
  const std::int64_t row = first_row();
  for (int granule = 0; granule < 8; ++granule) {
    const auto smem = simulator_.copy(tile, {granule * 64, 0, row});
    for (int i = 0; i < 8; ++i) EXPECT_EQ(line(smem, i, 64), bytes_of(row + i, granule * 64, 64));
  }
  const auto past = simulator_.copy(tile, {512, 0, row});
  EXPECT_EQ(past, std::vector<std::byte>(past.size()));
}

TEST_F(MixedRows, RopeTileFetchesTheTailOfEachRow) {
  const RowMatrix rope = columns_as(operand_.row_matrix(), DType::bf16, 512, 64);
  const TileDescriptor tile = make_tile(rope, {.box_rows = 8});
  validate_descriptor(tile);
  EXPECT_EQ(tile.describe(), "bf16 dims(64, 1, 56) strides(640, 640) box(64, 1, 8) b128 at +512");
  const std::int64_t row = first_row();
  const auto smem = simulator_.copy(tile, {0, 0, row});
  for (int i = 0; i < 8; ++i) EXPECT_EQ(line(smem, i, 128), bytes_of(row + i, 512, 128));
}

TEST_F(MixedRows, RopeTileNeverRunsIntoTheNextRow) {
  const RowMatrix rope = columns_as(operand_.row_matrix(), DType::bf16, 512, 64);
  const auto smem = simulator_.copy(make_tile(rope, {.box_rows = 8}), {64, 0, 0});
  EXPECT_EQ(smem, std::vector<std::byte>(smem.size()));
}

TEST_F(MixedRows, WindowMustLieInTheRow) {
  EXPECT_NO_THROW(columns_as(operand_.row_matrix(), DType::bf16, 512, 64));
  EXPECT_THROW(columns_as(operand_.row_matrix(), DType::bf16, 512, 65), Error);
  EXPECT_THROW(columns_as(operand_.row_matrix(), DType::bf16, -16, 64), Error);
}

TEST_F(MixedRows, Gather4FetchesRowsInTheGivenOrderAndZerosForMinusOne) {
  // fp8 moved as i64: a box of 64 elements instead of 512, which would be too many.
  const RowMatrix content = columns_as(operand_.row_matrix(), DType::i64, 0, 64);
  const TileDescriptor tile =
      make_gather4_tile(content, {.tile_width = 64, .l2_promotion = L2Promotion::b128});
  validate_descriptor(tile);
  const auto page_rows = static_cast<std::int32_t>(operand_.rows_per_page_stride());
  const std::array<std::int32_t, 4> rows = {3 * page_rows + 5, -1, 0, 2 * page_rows};
  const auto smem = simulator_.gather4(tile, 0, rows);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(line(smem, i, 512), bytes_of(rows[i], 0, 512)) << i;
  EXPECT_EQ(page_rows, 16);
}

TEST_F(MixedRows, RopeGather4FetchesTheTails) {
  const RowMatrix rope = columns_as(operand_.row_matrix(), DType::bf16, 512, 64);
  const TileDescriptor tile = make_gather4_tile(rope, {.tile_width = 64, .swizzle = Swizzle::b128});
  validate_descriptor(tile);
  const std::array<std::int32_t, 4> rows = {17, -1, 2, 55};
  const auto smem = simulator_.gather4(tile, 0, rows);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(line(smem, i, 128), bytes_of(rows[i], 512, 128)) << i;
}

TEST_F(MixedRows, Gather4OverTheWholeFp8RowIsTooWideForABox) {
  const TileDescriptor tile = make_gather4_tile(operand_, {.tile_width = 640});
  EXPECT_THROW(validate_descriptor(tile), Error);
}

TEST_F(MixedRows, Gather4RefusesOtherShapes) {
  EXPECT_THROW(make_gather4_tile(operand_, {.tile_width = 641}), Error);
  EXPECT_THROW(make_gather4_tile(operand_, {.tile_width = 64, .tile_height = 6}), Error);
  RowMatrix heads = operand_.row_matrix();
  heads.num_heads = 2;
  EXPECT_THROW(make_gather4_tile(heads, {.tile_width = 64}), Error);
}

TEST(Gather4Copies, ColumnGroupsAndQuadsTileSharedMemoryWithoutGaps) {
  // bf16 rows of 576 at b128: 9 groups of 64 columns.
  const Gather4Tile tile =
      Gather4Tile::of(DType::bf16, {.tile_width = 576, .tile_height = 8, .swizzle = Swizzle::b128});
  EXPECT_EQ(tile.column_groups, 9);
  std::int64_t next = 0;
  for (int group = 0; group < tile.column_groups; ++group) {
    EXPECT_EQ(tile.column(group), group * 64);
    for (int quad = 0; quad < 2; ++quad) {
      EXPECT_EQ(tile.smem_offset(group, quad), next);
      next += 4 * 64;
    }
  }
  EXPECT_EQ(tile.expected_bytes(), next * 2);
}

TEST(Gather4Copies, ExpectedBytesCountTheIncompleteLastGroup) {
  const Gather4Tile tile =
      Gather4Tile::of(DType::bf16, {.tile_width = 80, .tile_height = 4, .swizzle = Swizzle::b128});
  EXPECT_EQ(tile.column_groups, 2);
  EXPECT_EQ(tile.expected_bytes(), 2 * 4 * 64 * 2);  // not 4 · 80 · 2: the copies write whole boxes
}

TEST(ScaleTile, AnyNumberOfScalesIsFetchedAndTheRestIsZero) {
  std::vector<float> scales(10);
  std::iota(scales.begin(), scales.end(), 1.0f);
  const ScaleMatrix matrix{.num_rows = 10, .head_stride_bytes = 40};  // 40 is not a multiple of 16
  const TileDescriptor tile = make_scale_tile(matrix, 8);
  validate_descriptor(tile);
  const auto bytes = std::as_bytes(std::span(scales));
  const auto smem = TileSimulator(bytes, bytes.data()).copy(tile, {4, 0});
  std::vector<float> fetched(8);
  std::memcpy(fetched.data(), smem.data(), smem.size());
  EXPECT_EQ(fetched, (std::vector<float>{5, 6, 7, 8, 9, 10, 0, 0}));
}

TEST(ScaleTile, HeadsAreRowsOfTheirOwn) {
  std::vector<float> scales(2 * 8);
  std::iota(scales.begin(), scales.end(), 1.0f);
  const TileDescriptor tile =
      make_scale_tile({.num_heads = 2, .num_rows = 8, .head_stride_bytes = 32}, 4);
  validate_descriptor(tile);
  const auto bytes = std::as_bytes(std::span(scales));
  const auto smem = TileSimulator(bytes, bytes.data()).copy(tile, {6, 1});
  std::vector<float> fetched(4);
  std::memcpy(fetched.data(), smem.data(), smem.size());
  EXPECT_EQ(fetched, (std::vector<float>{15, 16, 0, 0}));
}

TEST(ScaleTile, MisalignedHeadsAreNamedNotSilentlyRounded) {
  const TileDescriptor tile =
      make_scale_tile(ScaleMatrix{.num_heads = 2, .num_rows = 10, .head_stride_bytes = 40}, 8);
  EXPECT_THROW(validate_descriptor(tile), Error);
}

}  // namespace
}  // namespace quire
