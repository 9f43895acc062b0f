// SPDX-License-Identifier: Apache-2.0
#include "quire/blocked_operand.h"

#include <vector>

#include "cache_storage.h"
#include "gtest/gtest.h"
#include "quire/paged_kv_operand.h"
#include "quire/ragged_operand.h"

namespace quire {
namespace {

using testing::CacheStorage;

static_assert(KvOperand<BlockedOperand<PagedKvOperand>>);
static_assert(KvOperand<BlockedOperand<RaggedOperand>>);
static_assert(KvOperand<BlockedOperand<KvOperandRef>>);
static_assert(!KvDescriptors<BlockedOperand<PagedKvOperand>>);

class Blocked : public ::testing::Test {
 protected
     :  // two sequences of 8 keys, two tokens with lists of three blocks of three keys for both heads
  Blocked() : storage_({.pages = 6, .page_size = 4, .heads = 2, .row = 4}, 2, 2) {
    const std::uint32_t pages[] = {3, 1, 5, 6};  // 6: no page
    for (int i = 0; i < 4; ++i) storage_.entry(i / 2, i % 2) = pages[i];
  }
  BlockedOperand<PagedKvOperand> operand(const KeyFilter& filter = {}) const {
    return {PagedKvOperand(storage_.cache.key(0)), blocks_view(), 3, sources_.data(), filter};
  }
  TensorView blocks_view() const {
    return TensorView::contiguous(const_cast<std::int32_t*>(blocks_.data()), DType::i32, {2, 2, 3});
  }
  std::vector<RowAddress> rows_of(std::int64_t token, std::int64_t head,
                                  const KeyFilter& filter = {}) const {
    std::vector<RowAddress> rows(9);
    operand(filter).locate(token, head, 0, 9, rows.data());
    return rows;
  }
  // Keys that slots must name, -1 for none.
  void expect_keys(const std::vector<RowAddress>& rows, std::int64_t sequence, std::int64_t head,
                   const std::vector<std::int64_t>& keys) const {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      RowAddress row{};
      if (keys[i] >= 0) {
        PagedKvOperand(storage_.cache.key(0)).locate(sequence, head, keys[i], 1, &row);
      }
      EXPECT_EQ(rows[i], row) << "slot " << i;
    }
  }

  CacheStorage storage_;
  std::vector<std::int32_t> blocks_ = {2, -1, 0, 1, 2, -7, 0, 1, 2, 3, 1, 1 << 30};
  std::vector<BlockSource> sources_ = {
      {.sequence = 0, .begin = 0, .end = 8, .num_blocks = 3},
      {.sequence = 1, .begin = 2, .end = 5, .num_blocks = 3},
  };
};

TEST_F(Blocked, SlotsAreTheKeysOfTheBlocksInTheOrderOfTheList) {
  expect_keys(rows_of(0, 0), 0, 0, {6, 7, -1, -1, -1, -1, 0, 1, 2});
  expect_keys(rows_of(0, 1), 0, 1, {3, 4, 5, 6, 7, -1, -1, -1, -1});
}

TEST_F(Blocked, KeysThatTheTokenDoesNotSeeHaveNoRow) {
  expect_keys(rows_of(1, 0), 1, 0, {-1, -1, 2, 3, -1, -1, -1, -1, -1});  // 4 has no page
  expect_keys(rows_of(1, 1), 1, 1, {-1, -1, -1, 3, -1, -1, -1, -1, -1});
}

TEST_F(Blocked, AFilterHidesSingleKeys) {
  const KeyFilter even{.state = nullptr,
                       .shows = [](const void*, std::int64_t token, std::int64_t key) {
                         return token == 0 && key % 2 == 0;
                       }};
  expect_keys(rows_of(0, 0, even), 0, 0, {6, -1, -1, -1, -1, -1, 0, -1, 2});
}

TEST_F(Blocked, PartsOfAListAreWhatTheWholeHolds) {
  const auto all = rows_of(0, 0);
  for (std::int64_t first = 0; first < 9; ++first) {
    for (std::int64_t count = 1; first + count <= 9; ++count) {
      std::vector<RowAddress> part(static_cast<std::size_t>(count));
      operand().locate(0, 0, first, count, part.data());
      for (std::int64_t i = 0; i < count; ++i) {
        EXPECT_EQ(part[static_cast<std::size_t>(i)], all[static_cast<std::size_t>(first + i)]);
      }
    }
  }
}

TEST_F(Blocked, ATokenStandsBehindTheSlotsOfItsLists) {
  sources_[0].num_blocks = 2;
  EXPECT_EQ(operand().num_keys(0, 1), 6);
  EXPECT_EQ(operand().first_position(0, 1), 5);
  EXPECT_EQ(operand().num_keys(1, 1), 9);
}

}  // namespace
}  // namespace quire
