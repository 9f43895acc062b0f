// SPDX-License-Identifier: Apache-2.0
#include "quire/gathered_operand.h"

#include <optional>
#include <vector>

#include "cache_storage.h"
#include "gtest/gtest.h"
#include "quire/paged_kv_operand.h"
#include "quire/ragged_operand.h"

namespace quire {
namespace {

using testing::CacheStorage;

static_assert(KvOperand<GatheredOperand<PagedKvOperand>>);
static_assert(KvOperand<GatheredOperand<RaggedOperand>>);
static_assert(!KvDescriptors<GatheredOperand<PagedKvOperand>>);

class Gathered : public ::testing::Test {
 protected:  // two sequences of 8 keys, three tokens with lists of 5
  Gathered() : storage_({.pages = 6, .page_size = 4, .heads = 2, .row = 4}, 2, 2) {
    const std::uint32_t pages[] = {3, 1, 5, 6};  // 6: no page
    for (int i = 0; i < 4; ++i) storage_.entry(i / 2, i % 2) = pages[i];
  }
  GatheredOperand<PagedKvOperand> operand() const {
    return {PagedKvOperand(storage_.cache.key(0)), indices_view(), lengths_, sources_.data()};
  }
  TensorView indices_view() const {
    return TensorView::contiguous(const_cast<std::int32_t*>(indices_.data()), DType::i32, {3, 5});
  }
  std::vector<RowAddress> rows_of(std::int64_t token) const {
    std::vector<RowAddress> rows(5);
    operand().locate(token, 1, 0, 5, rows.data());
    return rows;
  }
  RowAddress base_row(std::int64_t sequence, std::int64_t key) const {
    RowAddress row;
    PagedKvOperand(storage_.cache.key(0)).locate(sequence, 1, key, 1, &row);
    return row;
  }

  CacheStorage storage_;
  std::vector<std::int32_t> indices_ = {7, 0, 7, 3, 2, 1, -1, 6, 2, 8, 0, 1, 2, 3, 4};
  std::vector<GatherSource> sources_ = {{0, 8}, {0, 8}, {1, 8}};
  std::optional<TensorView> lengths_{};
};

TEST_F(Gathered, SlotsAreTheKeysInTheOrderOfTheirList) {
  const auto rows = rows_of(0);
  const std::int64_t keys[] = {7, 0, 7, 3, 2};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(rows[i], base_row(0, keys[i])) << i;
}

TEST_F(Gathered, IndicesThatNameNoKeyHaveNoRow) {
  const auto rows = rows_of(1);
  EXPECT_EQ(rows[0], base_row(0, 1));
  EXPECT_EQ(rows[1].row, nullptr);  // -1
  EXPECT_EQ(rows[2], base_row(0, 6));
  EXPECT_EQ(rows[4].row, nullptr);  // 8 of 8 keys
  sources_[1].num_keys = 6;
  EXPECT_EQ(rows_of(1)[2].row, nullptr);
}

TEST_F(Gathered, TokensOfAnotherSequenceReadItsPages) {
  const auto rows = rows_of(2);
  for (std::int64_t key = 0; key < 4; ++key) {
    EXPECT_EQ(rows[static_cast<std::size_t>(key)], base_row(1, key));
  }
  EXPECT_EQ(rows[4].row, nullptr);  // key 4 has no page
}

TEST_F(Gathered, PartsOfAListAreWhatTheWholeHolds) {
  const auto all = rows_of(0);
  RowAddress part[2];
  operand().locate(0, 1, 3, 2, part);
  EXPECT_EQ(part[0], all[3]);
  EXPECT_EQ(part[1], all[4]);
}

TEST_F(Gathered, LengthsAreClampedToTheList) {
  EXPECT_EQ(operand().num_keys(0, 1), 5);
  std::vector<std::int32_t> lengths = {3, -2, 9};
  lengths_ = TensorView::contiguous(lengths.data(), DType::i32, {3});
  EXPECT_EQ(operand().num_keys(0, 1), 3);
  EXPECT_EQ(operand().num_keys(1, 1), 0);
  EXPECT_EQ(operand().num_keys(2, 1), 5);
}

TEST_F(Gathered, RowsAreThoseOfTheBase) {
  const PagedKvOperand base(storage_.cache.key(0));
  EXPECT_EQ(operand().layout(), base.layout());
  EXPECT_EQ(operand().heads(), base.heads());
}

TEST(GatheredRagged, AnyOperandMayBeTheBase) {
  std::vector<std::uint32_t> values(5 * 4);
  std::uint32_t offsets[3] = {0, 2, 5};
  const RaggedOperand base(TensorView::contiguous(values.data(), DType::u32, {5, 1, 4}),
                           TensorView::contiguous(offsets, DType::u32, {3}));
  std::vector<std::int32_t> indices = {2, 0};
  const std::vector<GatherSource> sources = {{1, 3}};
  const GatheredOperand<RaggedOperand> operand(
      base, TensorView::contiguous(indices.data(), DType::i32, {1, 2}), std::nullopt,
      sources.data());
  RowAddress rows[2];
  operand.locate(0, 0, 0, 2, rows);
  const auto* start = reinterpret_cast<const std::byte*>(values.data());
  EXPECT_EQ(rows[0].row, start + 4 * 16);
  EXPECT_EQ(rows[1].row, start + 2 * 16);
}

}  // namespace
}  // namespace quire
