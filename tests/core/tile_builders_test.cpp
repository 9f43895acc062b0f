// SPDX-License-Identifier: Apache-2.0
// Tiles of row matrices, executed: the bytes that a copy would fetch, against the tensor they come from.
#include "quire/tile_builders.h"

#include <vector>

#include "cache_storage.h"
#include "gtest/gtest.h"
#include "quire/error.h"
#include "quire/paged_kv_operand.h"
#include "quire/ragged_operand.h"
#include "tile_simulator.h"

namespace quire {
namespace {

using testing::CacheStorage;
using testing::TileSimulator;
using testing::words;

// 5 pages of 16 tokens, K and V, 3 layers, 2 heads of 64 u32: two granules of 32 at b128.
class PagedTile : public ::testing::Test {
 protected:
  PagedTile()
      : storage_({.pages = 5, .layers = 3, .page_size = 16, .heads = 2, .row = 64}, 1, 4),
        view_((set_table(storage_), storage_.cache.value(1))),
        operand_(view_),
        simulator_(storage_.bytes(), view_.data) {}

  static void set_table(CacheStorage& storage) {
    const std::uint32_t pages[] = {4, 0, 2, 0xFFFFFFFFu};
    for (int i = 0; i < 4; ++i) storage.entry(0, i) = pages[i];
  }
  std::uint32_t element(std::int64_t token, std::int64_t head, std::int64_t column) {
    return static_cast<std::uint32_t>(storage_.cache.blocks.offset(
        {storage_.entry(0, token / 16), 1, 1, token % 16, head, column}));
  }

  // The row of the matrix where a token stands.
  std::int64_t row_of(std::int64_t token) const {
    const PageSlot place = view_.pages().find(0, token);
    if (!place.exists()) return kUnassignedRow;
    return place.page * operand_.rows_per_page_stride() + place.slot;
  }

  CacheStorage storage_;
  KvLayerView view_;
  PagedKvOperand operand_;
  TileSimulator simulator_;
};

TEST_F(PagedTile, PlainTileFetchesItsPagesOfItsOwnLayer) {
  const TileDescriptor tile = make_tile(operand_, {.box_rows = 16});
  validate_descriptor(tile);
  for (int first = 0; first < 48; first += 16) {
    for (int granule = 0; granule < 2; ++granule) {
      const auto smem = words(simulator_.copy(tile, {granule * 32, 1, row_of(first)}));
      ASSERT_EQ(smem.size(), 16u * 32);
      for (int line = 0; line < 16; ++line) {
        for (int column = 0; column < 32; ++column) {
          ASSERT_EQ(smem[line * 32 + column], element(first + line, 1, granule * 32 + column));
        }
      }
    }
  }
}

TEST_F(PagedTile, UnassignedPageLoadsZeros) {
  const TileDescriptor tile = make_tile(operand_, {.box_rows = 16});
  ASSERT_EQ(row_of(48), kUnassignedRow);
  for (const std::uint32_t word : words(simulator_.copy(tile, {0, 0, row_of(48)}))) {
    EXPECT_EQ(word, 0u);
  }
}

TEST_F(PagedTile, SecondHalfOfAPageComesFromItsOwnRows) {
  const TileDescriptor tile = make_tile(operand_, {.box_rows = 8});
  EXPECT_EQ(words(simulator_.copy(tile, {0, 0, row_of(24)}))[0], element(24, 0, 0));
  EXPECT_EQ(words(simulator_.copy(tile, {0, 0, row_of(24)}))[7 * 32], element(31, 0, 0));
}

TEST_F(PagedTile, RowsPastTheLastPageAreZerosNotOtherMemory) {
  const TileDescriptor tile = make_tile(operand_, {.box_rows = 16});
  const auto smem = words(simulator_.copy(tile, {0, 0, operand_.row_matrix().num_rows - 4}));
  EXPECT_NE(smem[3 * 32], 0u);
  for (std::size_t i = 4 * 32; i < smem.size(); ++i) ASSERT_EQ(smem[i], 0u);
}

TEST_F(PagedTile, FoldedEqualsTheLoopOverGranules) {
  const TileDescriptor plain = make_tile(operand_, {.box_rows = 16});
  const TileDescriptor folded = make_folded_tile(operand_, {.box_rows = 16, .fold_chunks = 2});
  validate_descriptor(folded);
  const std::int64_t row = row_of(16);
  std::vector<std::byte> loop;
  for (int granule = 0; granule < 2; ++granule) {
    const auto part = simulator_.copy(plain, {granule * 32, 1, row});
    loop.insert(loop.end(), part.begin(), part.end());
  }
  EXPECT_EQ(simulator_.copy(folded, {0, row, 0, 1}), loop);
}

TEST_F(PagedTile, FoldingRefusesWhatWouldChangeBytes) {
  EXPECT_THROW(make_folded_tile(operand_, {.box_rows = 16, .fold_chunks = 0}), Error);
  RowMatrix matrix = operand_.row_matrix();
  matrix.row_width = 80;
  EXPECT_THROW(make_folded_tile(matrix, {.box_rows = 16, .fold_chunks = 2}), Error);
}

TEST_F(PagedTile, WithoutAHeadAxisThereIsOneHead) {
  RowMatrix matrix = operand_.row_matrix();
  EXPECT_THROW(make_tile(matrix, {.box_rows = 16, .heads = HeadAxis::absent}), Error);
  EXPECT_THROW(
      make_folded_tile(matrix, {.box_rows = 16, .fold_chunks = 2, .heads = HeadAxis::absent}),
      Error);
  matrix.num_heads = 1;
  const std::int64_t row = row_of(16);
  EXPECT_EQ(
      simulator_.copy(make_tile(matrix, {.box_rows = 16, .heads = HeadAxis::absent}), {32, row}),
      simulator_.copy(make_tile(matrix, {.box_rows = 16}), {32, 0, row}));
  EXPECT_EQ(
      simulator_.copy(
          make_folded_tile(matrix, {.box_rows = 16, .fold_chunks = 2, .heads = HeadAxis::absent}),
          {0, row, 0}),
      simulator_.copy(make_folded_tile(matrix, {.box_rows = 16, .fold_chunks = 2}),
                      {0, row, 0, 0}));
}

TEST(DepthTail, ColumnsPastTheRowAreZerosNotTheNextHead) {
  // 40 columns of 4 bytes: the second granule of 32 has 8 of them.
  CacheStorage storage({.pages = 2, .page_size = 16, .heads = 2, .row = 40}, 1, 1, 1);
  const KvLayerView view = storage.cache.key(0);
  const PagedKvOperand keys(view);
  const TileDescriptor tile = make_tile(keys, {.box_rows = 16});
  validate_descriptor(tile);
  const auto smem = words(
      TileSimulator(storage.bytes(), view.data).copy(tile, {32, 0, keys.rows_per_page_stride()}));
  for (int column = 0; column < 32; ++column) {
    const std::int64_t value = storage.cache.blocks.offset({1, 0, 0, 2, 0, 32 + column});
    EXPECT_EQ(smem[2 * 32 + column], column < 8 ? value : 0);
  }
}

class RaggedTile : public ::testing::Test {
 protected:  // 10 tokens of 4 heads × 32 u32, lengths 3 and 7
  RaggedTile() : bytes_(10 * 4 * 32 * 4) {
    for (std::uint32_t i = 0; i < bytes_.size() / 4; ++i) std::memcpy(&bytes_[i * 4], &i, 4);
  }
  RowMatrix matrix() {
    const RaggedOperand operand(TensorView::contiguous(bytes_.data(), DType::u32, {10, 4, 32}),
                                TensorView::contiguous(offsets_, DType::u32, {3}));
    return operand.row_matrix();
  }
  std::vector<std::uint32_t> fetch(const RaggedTileRequest& request, int first_row, int num_rows,
                                   int head) {
    const TileDescriptor tile = make_ragged_tile(matrix(), request);
    validate_descriptor(tile);
    return words(TileSimulator(bytes_, bytes_.data())
                     .copy(tile, ragged_coordinate(request, 0, first_row, num_rows, head)));
  }

  std::vector<std::byte> bytes_;
  std::uint32_t offsets_[3] = {0, 3, 10};
};

TEST_F(RaggedTile, RowsAfterTheSequenceAreZerosNotTheNextSequence) {
  const RaggedTileRequest request{.tile_rows = 8};
  for (int num_rows = 0; num_rows <= 8; ++num_rows) {
    for (int first_row = 0; first_row + num_rows <= 10; ++first_row) {
      const auto smem = fetch(request, first_row, num_rows, 2);
      for (int line = 0; line < 8; ++line) {
        const std::uint32_t value = ((first_row + line) * 4 + 2) * 32 + 5;
        ASSERT_EQ(smem[line * 32 + 5], line < num_rows ? value : 0u)
            << num_rows << " rows from " << first_row;
      }
    }
  }
}

TEST_F(RaggedTile, GroupsOfHeadsTravelTogether) {
  const RaggedTileRequest request{.tile_rows = 4, .group_heads = 2};
  const auto smem = fetch(request, 7, 3, 1);  // heads 2 and 3
  for (int line = 0; line < 4; ++line) {
    for (int head = 0; head < 2; ++head) {
      const std::uint32_t value = ((7 + line) * 4 + 2 + head) * 32 + 9;
      EXPECT_EQ(smem[(line * 2 + head) * 32 + 9], line < 3 ? value : 0u);
    }
  }
}

TEST_F(RaggedTile, GroupMustDivideTheHeads) {
  EXPECT_THROW(make_ragged_tile(matrix(), {.tile_rows = 4, .group_heads = 3}), Error);
}

TEST_F(RaggedTile, BoxesOfHeadsAndColumns) {
  const TileDescriptor tile = make_tile(
      matrix(), {.swizzle = Swizzle::none, .box_columns = 8, .box_rows = 3, .box_heads = 2});
  validate_descriptor(tile);
  const auto smem = words(TileSimulator(bytes_, bytes_.data()).copy(tile, {16, 3, 8}));
  ASSERT_EQ(smem.size(), 3u * 2 * 8);
  for (int row = 0; row < 3; ++row) {
    for (int head = 0; head < 2; ++head) {
      const bool is_inside = row < 2 && head == 0;  // of 10 rows and 4 heads
      const std::uint32_t value = ((8 + row) * 4 + 3 + head) * 32 + 16 + 5;
      EXPECT_EQ(smem[(row * 2 + head) * 8 + 5], is_inside ? value : 0u);
    }
  }
}

TEST_F(RaggedTile, GroupsOfHeadsOneAfterTheOther) {
  const TileDescriptor tile =
      make_grouped_tile(matrix(), {.box_rows = 2, .group_heads = 2, .box_groups = 2});
  validate_descriptor(tile);
  const auto smem = words(TileSimulator(bytes_, bytes_.data()).copy(tile, {0, 0, 9, 0}));
  ASSERT_EQ(smem.size(), 2u * 2 * 2 * 32);
  for (int group = 0; group < 2; ++group) {
    for (int row = 0; row < 2; ++row) {
      for (int head = 0; head < 2; ++head) {
        const std::uint32_t value = ((9 + row) * 4 + 2 * group + head) * 32 + 9;
        EXPECT_EQ(smem[((group * 2 + row) * 2 + head) * 32 + 9], row == 0 ? value : 0u);
      }
    }
  }
}

TEST_F(RaggedTile, GroupsOfATileMustDivideTheHeads) {
  EXPECT_THROW(make_grouped_tile(matrix(), {.box_rows = 1, .group_heads = 3}), Error);
  EXPECT_THROW(make_grouped_tile(matrix(), {.box_rows = 1, .group_heads = 0}), Error);
}

TEST(QuadOrderedTile, RowsMustBeWholeGroupsOfOneHead) {
  RowMatrix matrix{.num_rows = 64, .row_width = 64, .row_stride_bytes = 128};
  EXPECT_NO_THROW(make_quad_ordered_tile(matrix, {.box_groups = 1}));
  matrix.num_heads = 2;
  EXPECT_THROW(make_quad_ordered_tile(matrix, {.box_groups = 1}), Error);
  matrix.num_heads = 1;
  matrix.num_rows = 48;
  EXPECT_THROW(make_quad_ordered_tile(matrix, {.box_groups = 1}), Error);
}

// Row 8c + 2s + e in line 8s + 2c + e.
TEST(QuadOrderedTile, EightNeighbouringRowsLandWhereOneThreadOfAQuadReads) {
  std::vector<std::uint32_t> weight(64 * 32);
  for (std::uint32_t i = 0; i < weight.size(); ++i) weight[i] = i;
  const TileDescriptor tile = make_quad_ordered_tile(
      row_matrix_of(TensorView::contiguous(weight.data(), DType::u32, {64, 32})),
      {.box_groups = 2});
  validate_descriptor(tile);
  const auto bytes = std::as_bytes(std::span(weight));
  const auto smem = words(TileSimulator(bytes, bytes.data()).copy(tile, {0, 0, 0, 0, 0}));
  ASSERT_EQ(smem.size(), weight.size());
  for (std::uint32_t line = 0; line < 64; ++line) {
    const std::uint32_t s = line % 32 / 8;
    const std::uint32_t c = line % 8 / 2;
    EXPECT_EQ(smem[line * 32 + 7], (line / 32 * 32 + 8 * c + 2 * s + line % 2) * 32 + 7) << line;
  }
}

}  // namespace
}  // namespace quire
