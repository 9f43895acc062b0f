// SPDX-License-Identifier: Apache-2.0
// One block per sequence slot, expressed as a paged cache with one table column.
#include "quire/continuous_cache.h"

#include "cache_storage.h"
#include "gtest/gtest.h"
#include "quire/error.h"
#include "quire/paged_kv_operand.h"

namespace quire {
namespace {

using testing::word_at;

class ContinuousCache : public ::testing::Test {
 protected:  // 3 slots of 100 tokens, K and V, 2 layers, 2 heads
  ContinuousCache()
      : storage_({.pages = 3, .layers = 2, .page_size = 100, .heads = 2, .row = 4}, 2, 1),
        cache_(continuous_cache(storage_.cache.blocks, storage_.cache.cache_lengths,
                                TensorView::contiguous(slots_, DType::u32, {2}))) {}

  std::uint32_t slots_[2] = {2, 0};
  testing::CacheStorage storage_;
  PagedKVCache cache_;
};

TEST_F(ContinuousCache, RowIsSlotTimesStridePlusToken) {
  EXPECT_EQ(PagedKvOperand(cache_.key(1)).rows_per_page_stride(), 2 * 2 * 100);
  EXPECT_EQ(PagedKvOperand(cache_.key(1)).row_matrix().num_rows, 2 * 400 + 100);
  EXPECT_EQ(cache_.pages().find(0, 99), (PageSlot{.page = 2, .slot = 99}));
  EXPECT_EQ(cache_.pages().find(1, 0), (PageSlot{.page = 0, .slot = 0}));
}

TEST_F(ContinuousCache, TokenPastTheSlotIsUnassigned) {
  const PagedKvOperand keys(cache_.key(0));
  RowAddress rows[2];
  keys.locate(1, 0, 99, 2, rows);
  EXPECT_NE(rows[0].row, nullptr);
  EXPECT_EQ(rows[1].row, nullptr);
}

TEST_F(ContinuousCache, ReadsWhatTheTensorHolds) {
  const PagedKvOperand values(cache_.value(1));
  RowAddress rows[100];
  values.locate(0, 1, 0, 100, rows);
  for (std::int64_t token = 0; token < 100; ++token) {
    EXPECT_EQ(word_at(rows[token].row), cache_.blocks.offset({2, 1, 1, token, 1, 0}));
  }
}

TEST_F(ContinuousCache, SlotsMayBeStrided) {
  const std::uint32_t slots[4] = {1, 77, 2, 77};
  TensorView view = TensorView::contiguous(const_cast<std::uint32_t*>(slots), DType::u32, {2});
  view.strides[0] = 2;
  const PagedKVCache cache =
      continuous_cache(storage_.cache.blocks, storage_.cache.cache_lengths, view);
  EXPECT_EQ(cache.pages().find(1, 3), (PageSlot{.page = 2, .slot = 3}));
}

TEST_F(ContinuousCache, WrongTableIsAnError) {
  EXPECT_THROW(continuous_cache(storage_.cache.blocks, storage_.cache.cache_lengths,
                                TensorView::contiguous(slots_, DType::u32, {1})),
               Error);
  EXPECT_THROW(continuous_cache(storage_.cache.blocks, storage_.cache.cache_lengths,
                                TensorView::contiguous(slots_, DType::i32, {2})),
               Error);
  EXPECT_THROW(continuous_cache(storage_.cache.page_table, storage_.cache.cache_lengths,
                                TensorView::contiguous(slots_, DType::u32, {2})),
               Error);
}

}  // namespace
}  // namespace quire
