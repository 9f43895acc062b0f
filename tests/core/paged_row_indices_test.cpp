// SPDX-License-Identifier: Apache-2.0
// populate() over every tile, page and alignment that kernels use, on every path of the table read.
#include "quire/paged_row_indices.h"

#include "cache_storage.h"
#include "gtest/gtest.h"
#include "quire/error.h"
#include "quire/paged_kv_operand.h"

namespace quire {
namespace {

using testing::CacheStorage;

constexpr KvOperandConfig config_of(int page_size) {
  return {.dtype = DType::u32, .page_size = page_size, .head_dim = 4};
}

constexpr std::uint32_t kPadding = 999999;

template <int kPage, int kTileRows, int kAlign> struct Walk {
  static constexpr int kPageSize = kPage;
  static constexpr int kTile = kTileRows;
  static constexpr int kAlignment = kAlign;
};

// A pool of 40 pages, K and V, one layer; the table maps column j to page j, then padding.
template <typename W> class PopulateSweep : public ::testing::Test {
 protected:
  static constexpr int kPages = 40;
  using Operand = PagedKvOperand<config_of(W::kPageSize)>;

  PopulateSweep()
      : storage_({.pages = kPages, .page_size = W::kPageSize, .row = 4}, 1,
                 padded_table_columns(kPages), kPadding) {
    storage_.set_identity_table(kPages);
  }

  void expect_rows_from(std::uint32_t base) {
    const Operand operand(storage_.cache.key(0));
    const auto tile = operand.template populate<W::kTile, W::kAlignment>(0, base);
    for (std::uint32_t line = 0; line < W::kTile; ++line) {
      const std::uint32_t token = base + line;
      const std::uint32_t expected = token / W::kPageSize * 2 * W::kPageSize + token % W::kPageSize;
      ASSERT_EQ(tile.get_row(line), expected) << "line " << line;
      ASSERT_EQ(operand.row_idx(0, token), expected) << "token " << token;
    }
  }

  CacheStorage storage_;
};

using Walks =
    ::testing::Types<Walk<16, 64, 64>, Walk<16, 64, 16>, Walk<32, 64, 64>, Walk<32, 64, 32>,
                     Walk<64, 64, 64>, Walk<128, 64, 64>, Walk<256, 64, 64>, Walk<16, 128, 128>,
                     Walk<16, 128, 16>, Walk<32, 128, 128>, Walk<32, 128, 32>, Walk<64, 128, 128>,
                     Walk<64, 128, 64>, Walk<128, 128, 128>, Walk<256, 128, 128>,
                     Walk<16, 256, 256>, Walk<16, 256, 16>, Walk<32, 256, 256>, Walk<32, 256, 32>,
                     Walk<64, 256, 256>, Walk<64, 256, 64>, Walk<128, 256, 256>,
                     Walk<128, 256, 128>, Walk<256, 256, 256>>;
TYPED_TEST_SUITE(PopulateSweep, Walks);

TYPED_TEST(PopulateSweep, RowsFromTheFirstTile) {
  this->expect_rows_from(0);
}
TYPED_TEST(PopulateSweep, RowsFromTheSecondTile) {
  this->expect_rows_from(TypeParam::kTile);
}

// The chunk is the least of: power of two in the pages, power of two in the alignment, 8.
static_assert(table_chunk(128, 128, 16) == 8);
static_assert(table_chunk(256, 256, 16) == 8);
static_assert(table_chunk(128, 128, 64) == 2);
static_assert(table_chunk(128, 64, 64) == 1);
static_assert(table_chunk(192, 192, 64) == 1);
static_assert(table_chunk(192, 64, 16) == 4);
static_assert(table_chunk(64, 64, 256) == 1);

template <int kTileRows, int kAlign, int kPage>
TableRead path_of(const std::uint32_t* entries, std::int64_t columns, std::int64_t first) {
  return choose_table_read<kv_num_sub_tiles(kTileRows, kPage),
                           table_chunk(kTileRows, kAlign, kPage)>({entries, columns}, first);
}

TEST(PageTable, PaddedAlignedTableIsReadByVectors) {
  testing::AlignedWords table(padded_table_columns(8), 0);
  const std::int64_t columns = table.size();
  EXPECT_EQ((path_of<128, 128, 16>(table.data(), columns, 0)), TableRead::vector);
  EXPECT_EQ((path_of<256, 256, 16>(table.data(), columns, 0)), TableRead::vector);
  EXPECT_EQ((path_of<128, 128, 64>(table.data(), columns, 2)), TableRead::vector);
}

TEST(PageTable, ChunkOfOneIsReadByScalars) {
  testing::AlignedWords table(padded_table_columns(8), 0);
  EXPECT_EQ((path_of<128, 64, 64>(table.data(), table.size(), 0)), TableRead::scalar);
  EXPECT_EQ((path_of<192, 192, 64>(table.data(), table.size(), 0)), TableRead::scalar);
}

TEST(PageTable, MisalignedRowIsReadByScalars) {
  testing::AlignedWords table(padded_table_columns(8), 0, 1);
  EXPECT_EQ((path_of<128, 128, 16>(table.data(), table.size(), 0)), TableRead::scalar);
}

TEST(PageTable, TileThatReachesTheLastColumnIsNotClipped) {
  testing::AlignedWords table(16, 0);
  EXPECT_EQ((path_of<128, 128, 16>(table.data(), 16, 8)), TableRead::vector);
  EXPECT_EQ((path_of<128, 128, 16>(table.data(), 15, 8)), TableRead::clipped);
}

TEST(PageTable, UnpaddedTableGivesTheSameRowsAndUnassignedPastItsEnd) {
  CacheStorage storage({.pages = 5, .page_size = 16, .row = 4}, 1, 5);
  storage.set_identity_table(5);
  const PagedKvOperand<config_of(16)> operand(storage.cache.key(0));
  const auto tile = operand.populate<128, 128>(0, 0);
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_EQ(tile.rows[i], i * 32);
  for (std::uint32_t i = 5; i < 8; ++i) EXPECT_EQ(tile.rows[i], kUnassignedRow);
}

TEST(PageTable, OddRowStrideGivesTheRowsOfTheRightSequence) {
  CacheStorage storage({.pages = 20, .page_size = 16, .row = 4}, 2, 9);
  storage.set_identity_table(18);
  const PagedKvOperand<config_of(16)> operand(storage.cache.key(0));
  const auto tile =
      operand.populate<128, 128>(1, 0);  // starts at table entry 9: not 32-byte aligned
  for (std::uint32_t i = 0; i < 8; ++i) EXPECT_EQ(tile.rows[i], (9 + i) * 32);
}

TEST(PageTable, ClippedReadNeverTakesTheNextSequencesPages) {
  CacheStorage storage({.pages = 12, .page_size = 16, .row = 4}, 2, 6);
  storage.set_identity_table(12);
  const PagedKvOperand<config_of(16)> operand(storage.cache.key(0));
  const auto tile = operand.populate<128, 128>(0, 0);
  EXPECT_EQ(tile.rows[5], 5u * 32);
  EXPECT_EQ(tile.rows[6], kUnassignedRow);
}

TEST(PageTable, PaddingValueNeverLeaksIntoRows) {
  CacheStorage storage({.pages = 4, .page_size = 16, .row = 4}, 1, padded_table_columns(4),
                       kPadding);
  storage.set_identity_table(3);
  const PagedKvOperand<config_of(16)> operand(storage.cache.key(0));
  const auto tile = operand.populate<128, 128>(0, 0);
  for (int i = 0; i < 3; ++i) EXPECT_LT(tile.rows[i], operand.num_kv_rows());
  for (int i = 3; i < 8; ++i) EXPECT_EQ(tile.rows[i], kUnassignedRow);
}

TEST(PageTable, BothSentinelsAreUnassigned) {
  CacheStorage storage({.pages = 4, .page_size = 16, .row = 4}, 1, 2);
  storage.entry(0, 0) = 4;  // num_pages
  storage.entry(0, 1) = 0xFFFFFFFFu;
  const PagedKvOperand<config_of(16)> operand(storage.cache.key(0));
  EXPECT_EQ(operand.row_idx(0, 3), kUnassignedRow);
  EXPECT_EQ(operand.row_idx(0, 17), kUnassignedRow);
  EXPECT_EQ((operand.populate<32, 32>(0, 0).rows[0]), kUnassignedRow);
  EXPECT_EQ((operand.populate<32, 32>(0, 0).rows[1]), kUnassignedRow);
  EXPECT_EQ((operand.block_paged_ptr<16>(0, 0, 0)), nullptr);
}

TEST(PageTable, UnassignedRowPlusAnyOffsetIsOutsideEveryDescriptor) {
  CacheStorage storage({.pages = 4, .page_size = 256, .row = 4}, 1, 1);
  const PagedKvOperand<config_of(256)> operand(storage.cache.key(0));
  const auto tile = operand.populate<256, 256>(0, 0);
  EXPECT_GE(tile.get_row(0), kUnassignedRow);
  EXPECT_GE(tile.get_row(255), operand.num_kv_rows());
  EXPECT_LT(tile.get_row(255), 1u << 31);
}

TEST(Tile, SecondHalfOfPageKeepsItsInPageOffset) {
  CacheStorage storage({.pages = 3, .layers = 2, .page_size = 256, .row = 4}, 1, 1);
  storage.entry(0, 0) = 2;
  const PagedKvOperand<config_of(256)> operand(storage.cache.key(1));
  const std::uint32_t page_row = 2 * 2 * 2 * 256;
  EXPECT_EQ((operand.populate<128, 128>(0, 128).rows[0]), page_row + 128);
  EXPECT_EQ((operand.populate<64, 64>(0, 192).rows[0]), page_row + 192);
}

TEST(Tile, BaseThatBreaksItsPromisedAlignmentIsAnError) {
  CacheStorage storage({.pages = 3, .page_size = 256, .row = 4}, 1, 1);
  storage.entry(0, 0) = 1;
  const PagedKvOperand<config_of(256)> operand(storage.cache.key(0));
  EXPECT_THROW((operand.populate<128, 256>(0, 128)), Error);
}

TEST(Tile, PairedCtasHoldTheRowsOfTheWholeTile) {
  using Peer = PagedRowIndices<256, 64, CtaPair::peer>;
  EXPECT_EQ(Peer::kNumPages, 4);
  EXPECT_EQ(Peer::kCtaGroup, 2);
  EXPECT_EQ((PagedRowIndices<256, 64>::kCtaGroup), 1);
  EXPECT_EQ((PagedRowIndices<256, 0, CtaPair::leader>::kNumPages), 1);
}

// A table full of the id of the spare last page (N of N + 1 pages): every row is that page's, and
// inside the pool.
template <typename W> class NullPage : public ::testing::Test {};
using NullPageWalks = ::testing::Types<Walk<128, 128, 128>, Walk<128, 256, 256>, Walk<64, 64, 64>,
                                       Walk<64, 128, 128>>;
TYPED_TEST_SUITE(NullPage, NullPageWalks);

TYPED_TEST(NullPage, SparePageIsAPageLikeAnyOther) {
  constexpr std::uint32_t kRealPages = 6;
  CacheStorage storage({.pages = kRealPages + 1, .page_size = TypeParam::kPageSize, .row = 4}, 1,
                       padded_table_columns(4), kRealPages);
  const PagedKvOperand<config_of(TypeParam::kPageSize)> operand(storage.cache.key(0));
  const auto tile = operand.template populate<TypeParam::kTile, TypeParam::kAlignment>(0, 0);
  const std::uint32_t stride = operand.rows_per_page_stride();
  for (const std::uint32_t row : tile.rows) {
    EXPECT_EQ(row, kRealPages * stride);
    EXPECT_LT(row, (kRealPages + 1) * stride);
  }
}

}  // namespace
}  // namespace quire
