// SPDX-License-Identifier: Apache-2.0
#include "quire/paged_kv_operand.h"

#include <type_traits>

#include "cache_storage.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using testing::CacheStorage;
using testing::word_at;

constexpr KvOperandConfig words_config(int page_size, int head_dim) {
  return {.dtype = DType::u32, .page_size = page_size, .head_dim = head_dim};
}

static_assert(KvOperand<PagedKvOperand<words_config(16, 8)>>);
static_assert(KvScales<PagedKvOperand<words_config(16, 8)>>);
static_assert(KvDescriptors<PagedKvOperand<words_config(16, 8)>>);
static_assert(!KvScaleDescriptors<PagedKvOperand<words_config(16, 8)>>);
static_assert(std::is_trivially_copyable_v<PagedKvOperand<words_config(16, 8)>>);

TEST(BlockStride, ViewOfInnerLayerUsesFullSixDimensionalStride) {
  CacheStorage storage({.pages = 4, .layers = 3, .page_size = 2, .heads = 2, .row = 4}, 1, 1);
  storage.entry(0, 0) = 1;
  const PagedKvOperand<words_config(2, 4)> keys(storage.cache.key(1));
  // Page 1, K, layer 1, token 0, head 1, column 2: 1·96 + 1·16 + 1·4 + 2. A stride of one page's
  // own rows gives 22.
  EXPECT_EQ(word_at(keys.block_paged_ptr<1>(0, 0, 1, 2)), 118u);
}

TEST(BlockStride, RowsCountAllLayersAndBothOfKAndV) {
  CacheStorage storage({.pages = 4, .layers = 3, .page_size = 2, .heads = 2, .row = 4}, 1, 1);
  storage.entry(0, 0) = 3;
  const PagedKvOperand<words_config(2, 4)> keys(storage.cache.key(2));
  EXPECT_EQ(keys.rows_per_page_stride(), 2u * 3 * 2);
  EXPECT_EQ(keys.row_idx(0, 1), 3u * 12 + 1);
  EXPECT_EQ(keys.num_kv_rows(), 3 * 12 + 2);
}

TEST(BlockStride, EveryLayerAndSideReadsItsOwnElements) {
  const std::int64_t layers = 3;
  CacheStorage storage({.pages = 4, .layers = layers, .page_size = 2, .heads = 2, .row = 4}, 1, 2);
  storage.entry(0, 0) = 2;
  storage.entry(0, 1) = 0;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    for (std::int64_t kv = 0; kv < 2; ++kv) {
      const KvLayerView view = kv == 0 ? storage.cache.key(layer) : storage.cache.value(layer);
      const PagedKvOperand<words_config(2, 4)> operand(view);
      for (std::uint32_t token = 0; token < 4; ++token) {
        const std::int64_t page = token < 2 ? 2 : 0;
        const std::int64_t expected =
            storage.cache.blocks.offset({page, kv, layer, token % 2, 1, 3});
        EXPECT_EQ(word_at(operand.block_paged_ptr<1>(0, token, 1, 3)), expected);
      }
    }
  }
}

TEST(BlockStride, RowIndexTimesRowStrideIsTheAddress) {
  CacheStorage storage({.pages = 5, .layers = 2, .page_size = 4, .heads = 2, .row = 4}, 1, 3);
  for (int column = 0; column < 3; ++column) storage.entry(0, column) = 4 - column;
  const PagedKvOperand<words_config(4, 4)> values(storage.cache.value(1));
  const std::byte* base = storage.cache.value(1).data;
  for (std::uint32_t token = 0; token < 12; ++token) {
    EXPECT_EQ(values.block_paged_ptr<1>(0, token, 0),
              base + values.row_idx(0, token) * values.row_stride_bytes());
  }
}

TEST(BlockStride, HeadMajorPoolsHaveRowsOfOneHead) {
  CacheStorage storage({.pages = 3, .page_size = 4, .heads = 2, .row = 4}, 1, 1);
  storage.entry(0, 0) = 2;
  TensorView& blocks = storage.cache.blocks;  // [page, kv, layer, head, token, row] in memory
  blocks.strides = {2 * 2 * 4 * 4, 2 * 4 * 4, 2 * 4 * 4, 4, 4 * 4, 1};
  const PagedKvOperand<words_config(4, 4)> keys(storage.cache.key(0));
  EXPECT_EQ(word_at(keys.block_paged_ptr<4>(0, 3, 1, 2)), 2u * 64 + 1 * 16 + 3 * 4 + 2);
  EXPECT_EQ(keys.row_idx(0, 3), 2u * 16 + 3);
  EXPECT_EQ(keys.row_matrix().head_stride_bytes, 64);
}

template <int kPage, int kTileRows> void expect_tile_is_one_run_of_rows() {
  CacheStorage storage({.pages = 3, .layers = 2, .page_size = kPage, .heads = 2, .row = 4}, 1, 2);
  storage.entry(0, 0) = 2;
  storage.entry(0, 1) = 1;
  const PagedKvOperand<words_config(kPage, 4)> keys(storage.cache.key(1));
  for (std::uint32_t token = 0; token < 2 * kPage; token += kTileRows) {
    const std::byte* tile = keys.template block_paged_ptr<kTileRows>(0, token, 1);
    for (std::uint32_t i = 0; i < kTileRows; ++i) {
      const std::int64_t page = token + i < kPage ? 2 : 1;
      EXPECT_EQ(word_at(tile + i * keys.row_stride_bytes()),
                storage.cache.blocks.offset({page, 0, 1, (token + i) % kPage, 1, 0}));
    }
  }
}

TEST(BlockPagedPtr, TileOfAWholePage16) {
  expect_tile_is_one_run_of_rows<16, 16>();
}
TEST(BlockPagedPtr, TileOfAQuarterPage64) {
  expect_tile_is_one_run_of_rows<64, 16>();
}
TEST(BlockPagedPtr, TileOfHalfAPage128) {
  expect_tile_is_one_run_of_rows<128, 64>();
}

TEST(BlockPagedPtr, TokenPastTheTableHasNoAddress) {
  CacheStorage storage({.pages = 3, .page_size = 16, .row = 4}, 1, 1, 0);
  const PagedKvOperand<words_config(16, 4)> keys(storage.cache.key(0));
  EXPECT_NE(keys.block_paged_ptr<1>(0, 15, 0), nullptr);
  EXPECT_EQ(keys.block_paged_ptr<1>(0, 16, 0), nullptr);
}

TEST(BlockPagedPtr, OffsetsPastFourGigabytesDoNotWrap) {
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
  const PagedKvOperand<KvOperandConfig{.dtype = DType::bf16, .page_size = 64, .head_dim = 128}>
      keys(view);
  const auto distance = reinterpret_cast<std::intptr_t>(keys.block_paged_ptr<1>(0, 63, 0)) -
                        reinterpret_cast<std::intptr_t>(&origin);
  EXPECT_EQ(distance, std::int64_t{last_page} * 64 * 256 + 63 * 256);
}

TEST(Lengths, CacheLengthLeavesOutTheNewTokens) {
  CacheStorage storage({.pages = 4, .page_size = 16, .row = 4}, 2, 4);
  storage.lengths = {5, 33};
  storage.cache.cache_lengths.data = storage.lengths.data();
  const PagedKvOperand<words_config(16, 4)> keys(storage.cache.key(0));
  EXPECT_EQ(keys.cache_length(1), 33u);
  EXPECT_EQ(num_keys(keys, 0, 7), 12);
  EXPECT_EQ(num_keys(keys, 1, 1), 34);
}

TEST(Lengths, MaxContextIsTheCallersBoundOrTheTables) {
  CacheStorage storage({.pages = 4, .page_size = 16, .row = 4}, 1, 3);
  EXPECT_EQ(PagedKvOperand<words_config(16, 4)>(storage.cache.key(0)).max_context_length(), 48);
  EXPECT_EQ(PagedKvOperand<words_config(16, 4)>(storage.cache.key(0), 20u).max_context_length(),
            20);
}

TEST(Lengths, EmptyPoolHasNoRows) {
  CacheStorage storage({.pages = 0, .page_size = 16, .row = 4}, 1, 1, 0);
  const PagedKvOperand<words_config(16, 4)> keys(storage.cache.key(0));
  EXPECT_EQ(keys.num_kv_rows(), 0);
  EXPECT_EQ(keys.row_idx(0, 0), kUnassignedRow);
}

}  // namespace
}  // namespace quire
