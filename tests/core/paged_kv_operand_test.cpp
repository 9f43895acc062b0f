// SPDX-License-Identifier: Apache-2.0
#include "quire/paged_kv_operand.h"

#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#include "cache_storage.h"
#include "gtest/gtest.h"
#include "quire/error.h"

namespace quire {
namespace {

using testing::CacheStorage;
using testing::word_at;

static_assert(KvOperand<PagedKvOperand> && KvDescriptors<PagedKvOperand>);
static_assert(std::is_trivially_copyable_v<KvOperandRef>);

std::vector<RowAddress> locate(const PagedKvOperand& operand, std::int64_t head, std::int64_t first,
                               std::int64_t count) {
  std::vector<RowAddress> rows(static_cast<std::size_t>(count));
  operand.locate(0, head, first, count, rows.data());
  return rows;
}

TEST(PagedRows, EveryLayerAndSideReadsItsOwnElements) {
  const std::int64_t layers = 3;
  CacheStorage storage({.pages = 4, .layers = layers, .page_size = 2, .heads = 2, .row = 4}, 1, 2);
  storage.entry(0, 0) = 2;
  storage.entry(0, 1) = 0;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    for (std::int64_t kv = 0; kv < 2; ++kv) {
      const PagedKvOperand operand(kv == 0 ? storage.cache.key(layer) : storage.cache.value(layer));
      const auto rows = locate(operand, 1, 0, 4);
      for (std::int64_t token = 0; token < 4; ++token) {
        const std::int64_t page = token < 2 ? 2 : 0;
        EXPECT_EQ(word_at(rows[static_cast<std::size_t>(token)].row + 3 * 4),
                  storage.cache.blocks.offset({page, kv, layer, token % 2, 1, 3}));
      }
    }
  }
}

TEST(PagedRows, RunsMayStartAndEndInsideAPage) {
  CacheStorage storage({.pages = 5, .page_size = 4, .heads = 2, .row = 4}, 1, 4);
  for (int column = 0; column < 4; ++column) storage.entry(0, column) = 4 - column;
  const PagedKvOperand keys(storage.cache.key(0));
  const auto all = locate(keys, 1, 0, 16);
  for (std::int64_t first = 0; first < 16; ++first) {
    for (std::int64_t count = 0; first + count <= 16; ++count) {
      const auto rows = locate(keys, 1, first, count);
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(rows[static_cast<std::size_t>(i)], all[static_cast<std::size_t>(first + i)]);
      }
    }
  }
  for (std::int64_t token = 0; token < 16; ++token) {
    EXPECT_EQ(word_at(all[static_cast<std::size_t>(token)].row),
              storage.cache.blocks.offset({4 - token / 4, 0, 0, token % 4, 1, 0}));
  }
}

TEST(PagedRows, RowsWithoutAPageAreNullAndTheirNeighboursAreNot) {
  CacheStorage storage({.pages = 3, .page_size = 4, .row = 4}, 1, 3, 0);
  storage.entry(0, 1) = 3;  // num_pages
  const PagedKvOperand keys(storage.cache.key(0));
  const auto rows = locate(keys, 0, 2, 14);  // 2 tokens past the table
  for (std::int64_t i = 0; i < 14; ++i) {
    const std::int64_t token = 2 + i;
    const bool exists = token / 4 != 1 && token < 12;
    EXPECT_EQ(rows[static_cast<std::size_t>(i)].row != nullptr, exists) << token;
  }
}

TEST(PagedRows, HeadMajorPoolsHaveTheirOwnStrides) {
  CacheStorage storage({.pages = 3, .page_size = 4, .heads = 2, .row = 4}, 1, 1);
  storage.entry(0, 0) = 2;
  TensorView& blocks = storage.cache.blocks;  // [page, kv, layer, head, token, row] in memory
  blocks.strides = {2 * 2 * 4 * 4, 2 * 4 * 4, 2 * 4 * 4, 4, 4 * 4, 1};
  const PagedKvOperand keys(storage.cache.key(0));
  EXPECT_EQ(word_at(locate(keys, 1, 3, 1)[0].row), 2u * 64 + 1 * 16 + 3 * 4);
  EXPECT_EQ(keys.heads(), (KvHeads{.count = 2, .row_stride_bytes = 64, .plane_stride_bytes = 0}));
}

TEST(PagedRows, OffsetsPastFourGigabytesDoNotWrap) {
  // 2^20 pages of 2^14 bytes: the last page starts at 16 GiB. Addresses are compared, memory is not
  // read.
  KvLayerView view;
  std::byte origin{};
  view.data = &origin;
  view.row_format = RowFormat::uniform(DType::bf16, 128);
  view.num_pages = 1 << 20;
  view.page_size = 64;
  view.num_heads = 1;
  view.head_stride_bytes = view.token_stride_bytes = 256;
  view.page_stride_bytes = 64 * 256;
  const std::uint32_t last_page = (1 << 20) - 1;
  view.page_table = &last_page;
  view.page_table_stride = view.max_pages = 1;
  const auto distance =
      reinterpret_cast<std::intptr_t>(locate(PagedKvOperand(view), 0, 63, 1)[0].row) -
      reinterpret_cast<std::intptr_t>(&origin);
  EXPECT_EQ(distance, std::int64_t{last_page} * 64 * 256 + 63 * 256);
}

TEST(PagedRows, NewTokensFollowTheCachedOnes) {
  CacheStorage storage({.pages = 4, .page_size = 16, .row = 4}, 2, 4);
  storage.lengths = {5, 33};
  storage.cache.cache_lengths.data = storage.lengths.data();
  const PagedKvOperand keys(storage.cache.key(0));
  EXPECT_EQ(keys.num_keys(0, 7), 12);
  EXPECT_EQ(keys.num_keys(1, 0), 33);
}

TEST(PagedRows, AnyOperandIsWhatItRefersTo) {
  CacheStorage storage({.pages = 3, .page_size = 4, .heads = 2, .row = 4}, 1, 3, 0);
  storage.lengths = {9};
  storage.cache.cache_lengths.data = storage.lengths.data();
  const PagedKvOperand keys(storage.cache.key(0));
  const KvOperandRef any = keys;
  EXPECT_EQ(any.layout(), keys.layout());
  EXPECT_EQ(any.heads(), keys.heads());
  EXPECT_EQ(any.num_keys(0, 2), 11);
  EXPECT_EQ(any.row(0, 1, 6), locate(keys, 1, 6, 1)[0]);
}

// A view of 16 pages, K and V, 2 layers, 4 heads. Nothing is read.
KvLayerView good_view() {
  KvLayerView view;
  view.row_format = RowFormat::uniform(DType::bf16, 128);
  view.num_pages = 16;
  view.page_size = 64;
  view.num_heads = 4;
  view.head_stride_bytes = 256;
  view.token_stride_bytes = 4 * 256;
  view.page_stride_bytes = 2 * 2 * 64 * view.token_stride_bytes;
  view.max_pages = 8;
  return view;
}

std::optional<Error> reject(const KvLayerView& view) {
  try {
    PagedKvOperand(view).row_matrix();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

TEST(PagedMatrix, RowsCountAllLayersAndBothOfKAndV) {
  const PagedKvOperand keys(good_view());
  EXPECT_EQ(keys.rows_per_page_stride(), 2 * 2 * 64);
  EXPECT_EQ(keys.row_matrix(), (RowMatrix{.dtype = DType::bf16,
                                          .num_rows = 15 * 256 + 64,
                                          .num_heads = 4,
                                          .row_width = 128,
                                          .row_stride_bytes = 1024,
                                          .head_stride_bytes = 256}));
}

TEST(PagedMatrix, RowTimesRowStrideIsTheAddress) {
  CacheStorage storage({.pages = 5, .layers = 2, .page_size = 4, .heads = 2, .row = 4}, 1, 3);
  for (int column = 0; column < 3; ++column) storage.entry(0, column) = 4 - column;
  const KvLayerView view = storage.cache.value(1);
  const PagedKvOperand values(view);
  const auto rows = locate(values, 0, 0, 12);
  for (std::int64_t token = 0; token < 12; ++token) {
    const PageSlot place = view.pages().find(0, token);
    const std::int64_t row = place.page * values.rows_per_page_stride() + place.slot;
    EXPECT_EQ(rows[static_cast<std::size_t>(token)].row,
              view.data + row * values.row_matrix().row_stride_bytes);
  }
}

TEST(PagedMatrix, EmptyPoolHasNoRows) {
  KvLayerView view = good_view();
  view.num_pages = 0;
  EXPECT_EQ(PagedKvOperand(view).row_matrix().num_rows, 0);
}

TEST(PagedMatrix, MixedRowCountsInItsFirstDtype) {
  KvLayerView view = good_view();
  view.row_format = RowFormat::mla_fp8_block();
  EXPECT_EQ(PagedKvOperand(view).row_matrix().row_width, 656);
  EXPECT_EQ(PagedKvOperand(view).row_matrix().dtype, DType::fp8_e4m3);
}

TEST(PagedMatrix, PagesMustBeWholeRowsApart) {
  KvLayerView view = good_view();
  view.page_stride_bytes += 16;
  ASSERT_TRUE(reject(view).has_value());
  EXPECT_STREQ(reject(view)->what(),
               "PagedKvOperand: 'view.page_stride_bytes' must be a multiple of the token stride of "
               "1024 bytes, got 262160");
}

TEST(PagedMatrix, RowsMustNotOverlap) {
  KvLayerView view = good_view();
  view.token_stride_bytes = 128;
  ASSERT_TRUE(reject(view).has_value());
  EXPECT_EQ(reject(view)->argument(), "view.token_stride_bytes");
  view.token_stride_bytes = 0;
  EXPECT_TRUE(reject(view).has_value());
}

TEST(PagedMatrix, RowsStayBelowTwoToTheThirty) {
  KvLayerView view = good_view();  // 256 rows from page to page
  view.num_pages = (1 << 22) - 1;
  EXPECT_FALSE(reject(view).has_value());
  view.num_pages = 1 << 22;
  ASSERT_TRUE(reject(view).has_value());
  EXPECT_EQ(reject(view)->argument(), "view.num_pages");
  view.num_pages = std::numeric_limits<std::int64_t>::max();  // must not overflow the check
  EXPECT_TRUE(reject(view).has_value());
}

}  // namespace
}  // namespace quire
