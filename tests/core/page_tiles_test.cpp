// SPDX-License-Identifier: Apache-2.0
// Tiles of pages, executed on host memory, and how layers and tensors become matrices.
#include <cstring>
#include <vector>

#include "cache_storage.h"
#include "gtest/gtest.h"
#include "quire/error.h"
#include "quire/tile_builders.h"
#include "tile_simulator.h"

namespace quire {
namespace {

using testing::CacheStorage;
using testing::TileSimulator;
using testing::words;

// 5 pages of 16 tokens, K and V, 3 layers, 2 heads of 64 u32: two granules of 32 at b128.
class PageTile : public ::testing::Test {
 protected:
  PageTile()
      : storage_({.pages = 5, .layers = 3, .page_size = 16, .heads = 2, .row = 64}, 1, 1),
        view_(storage_.cache.value(1)),
        matrix_(page_matrix_of(view_, DType::u32, 64)),
        simulator_(storage_.bytes(), view_.data) {}

  std::uint32_t element(std::int64_t page, std::int64_t row, std::int64_t head,
                        std::int64_t column) {
    return static_cast<std::uint32_t>(
        storage_.cache.blocks.offset({page, 1, 1, row, head, column}));
  }

  CacheStorage storage_;
  KvLayerView view_;
  PageMatrix matrix_;
  TileSimulator simulator_;
};

TEST_F(PageTile, RowsOfOneHeadOfOnePageOfItsOwnLayer) {
  const TileDescriptor tile = make_tile(matrix_, {.box_rows = 8});
  validate_descriptor(tile);
  const auto smem = words(simulator_.copy(tile, {32, 8, 1, 4}));
  ASSERT_EQ(smem.size(), 8u * 32);
  for (int line = 0; line < 8; ++line) {
    for (int column = 0; column < 32; ++column) {
      ASSERT_EQ(smem[line * 32 + column], element(4, 8 + line, 1, 32 + column));
    }
  }
}

TEST_F(PageTile, ABoxStopsAtTheEndOfItsPage) {
  const auto smem = words(simulator_.copy(make_tile(matrix_, {.box_rows = 16}), {0, 12, 0, 2}));
  EXPECT_EQ(smem[3 * 32], element(2, 15, 0, 0));
  for (std::size_t i = 4 * 32; i < smem.size(); ++i) ASSERT_EQ(smem[i], 0u);
}

TEST_F(PageTile, APageBeyondTheLastLoadsZeros) {
  const TileDescriptor tile = make_tile(matrix_, {.box_rows = 16});
  for (const std::int64_t page : {std::int64_t{5}, std::int64_t{0xFFFFFFFF}, std::int64_t{-1}}) {
    const auto smem = simulator_.copy(tile, {0, 0, 0, page});
    EXPECT_EQ(smem, std::vector<std::byte>(smem.size())) << page;
  }
}

TEST_F(PageTile, FoldedEqualsTheLoopOverGranules) {
  const TileDescriptor plain = make_tile(matrix_, {.box_rows = 16});
  const TileDescriptor folded = make_folded_tile(matrix_, {.box_rows = 16, .fold_chunks = 2});
  validate_descriptor(folded);
  std::vector<std::byte> loop;
  for (int granule = 0; granule < 2; ++granule) {
    const auto part = simulator_.copy(plain, {granule * 32, 0, 1, 3});
    loop.insert(loop.end(), part.begin(), part.end());
  }
  EXPECT_EQ(simulator_.copy(folded, {0, 0, 0, 1, 3}), loop);
}

TEST_F(PageTile, WithoutAHeadAxisThereIsOneHead) {
  EXPECT_THROW(make_tile(matrix_, {.box_rows = 16, .heads = HeadAxis::absent}), Error);
  PageMatrix first = matrix_;
  first.num_heads = 1;
  EXPECT_EQ(
      simulator_.copy(make_tile(first, {.box_rows = 16, .heads = HeadAxis::absent}), {32, 4, 3}),
      simulator_.copy(make_tile(matrix_, {.box_rows = 16}), {32, 4, 0, 3}));
  const FoldedTileRequest folded{.box_rows = 16, .fold_chunks = 2};
  const FoldedTileRequest headless{.box_rows = 16, .fold_chunks = 2, .heads = HeadAxis::absent};
  EXPECT_EQ(simulator_.copy(make_folded_tile(first, headless), {0, 4, 0, 3}),
            simulator_.copy(make_folded_tile(matrix_, folded), {0, 4, 0, 0, 3}));
}

TEST_F(PageTile, ColumnsOfAnotherTypeKeepTheRows) {
  const PageMatrix tail = columns_as(matrix_, DType::i64, 128, 16);  // the second half of each row
  const TileDescriptor tile =
      make_tile(tail, {.swizzle = Swizzle::none, .box_columns = 18, .box_rows = 2});
  validate_descriptor(tile);
  const auto smem = words(simulator_.copy(tile, {0, 6, 1, 3}));
  ASSERT_EQ(smem.size(), 2u * 36);
  for (int line = 0; line < 2; ++line) {
    for (int column = 0; column < 36; ++column) {  // past the row's end: zeros, not the next head
      EXPECT_EQ(smem[line * 36 + column], column < 32 ? element(3, 6 + line, 1, 32 + column) : 0u);
    }
  }
  EXPECT_THROW(columns_as(matrix_, DType::i64, 128, 17), Error);
}

TEST(PageScales, ScalesOfAPageAreFetchedByRowAndPage) {
  CacheStorage storage({.pages = 3, .kv = 1, .layers = 2, .page_size = 16, .row = 8}, 1, 1);
  storage.add_scales(1, 4);
  const KvLayerView view = storage.cache.key(1);
  const TileDescriptor tile = make_scale_tile(page_scale_matrix_of(view), 8);
  validate_descriptor(tile);
  const TileSimulator simulator(std::as_bytes(std::span(storage.scales)), view.scales.data);
  const auto smem = simulator.copy(tile, {12, 3});
  std::vector<float> fetched(8);
  std::memcpy(fetched.data(), smem.data(), smem.size());
  for (int i = 0; i < 8; ++i) {
    const auto value = static_cast<float>((3 * 2 + 1) * 16 + 12 + i);
    EXPECT_EQ(fetched[static_cast<std::size_t>(i)], i < 4 ? value : 0.0f);
  }
}

TEST(PageScales, OneScaleForARowAndNoGapsBetweenThem) {
  CacheStorage storage({.pages = 3, .kv = 1, .layers = 2, .page_size = 16, .row = 8}, 1, 1);
  storage.add_scales(2, 3);
  EXPECT_THROW(page_scale_matrix_of(storage.cache.key(0)), Error);
  KvLayerView view = storage.cache.key(0);
  view.scales.num_slots = 1;  // but still two apart
  EXPECT_THROW(page_scale_matrix_of(view), Error);
  view.scales.token_stride = 1;
  EXPECT_NO_THROW(page_scale_matrix_of(view));
  view.num_heads = 2;
  EXPECT_THROW(page_scale_matrix_of(view), Error);
}

TEST(RowMatrixOf, TensorsOfRowsWithAndWithoutHeads) {
  TensorView tensor = TensorView::contiguous(nullptr, DType::bf16, {10, 4, 64});
  tensor.strides[0] = 512;
  EXPECT_EQ(row_matrix_of(tensor), (RowMatrix{.dtype = DType::bf16,
                                              .num_rows = 10,
                                              .num_heads = 4,
                                              .row_width = 64,
                                              .row_stride_bytes = 1024,
                                              .head_stride_bytes = 128}));
  EXPECT_EQ(row_matrix_of(TensorView::contiguous(nullptr, DType::fp8_e4m3, {10, 64})),
            (RowMatrix{.dtype = DType::fp8_e4m3,
                       .num_rows = 10,
                       .num_heads = 1,
                       .row_width = 64,
                       .row_stride_bytes = 64,
                       .head_stride_bytes = 64}));
}

TEST(RowMatrixOf, OtherTensorsAreRefused) {
  EXPECT_THROW(row_matrix_of(TensorView::contiguous(nullptr, DType::bf16, {64})), Error);
  EXPECT_THROW(row_matrix_of(TensorView::contiguous(nullptr, DType::bf16, {2, 3, 4, 64})), Error);
  TensorView strided = TensorView::contiguous(nullptr, DType::bf16, {10, 64});
  strided.strides[1] = 2;
  EXPECT_THROW(row_matrix_of(strided), Error);
}

}  // namespace
}  // namespace quire
