// SPDX-License-Identifier: Apache-2.0
#include "quire/page_cursor.h"

#include <array>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace quire {
namespace {

class PageCursorTest : public ::testing::Test {
 protected:  // two sequences of 3 columns with a gap behind them, 8 pages of 16
  std::vector<std::uint32_t> table_ = {5, 0, 8, 99, 7, kUnassignedPage, 2, 99};
  PageCursor pages_{.page_table = table_.data(),
                    .row_stride = 4,
                    .max_pages = 3,
                    .num_pages = 8,
                    .page_size = 16};
};

TEST_F(PageCursorTest, PositionIsAColumnAndASlot) {
  EXPECT_EQ(pages_.find(0, 0), (PageSlot{.page = 5, .slot = 0}));
  EXPECT_EQ(pages_.find(0, 15), (PageSlot{.page = 5, .slot = 15}));
  EXPECT_EQ(pages_.find(0, 16), (PageSlot{.page = 0, .slot = 0}));
  EXPECT_EQ(pages_.find(1, 47), (PageSlot{.page = 2, .slot = 15}));
}

TEST_F(PageCursorTest, BothSentinelsAreNoPage) {
  EXPECT_FALSE(pages_.find(0, 32).exists());
  EXPECT_FALSE(pages_.find(1, 16).exists());
  EXPECT_EQ(pages_.page_at(0, 2), -1);
  EXPECT_EQ(pages_.page_at(1, 1), -1);
}

TEST_F(PageCursorTest, ColumnPastTheTableIsNoPageAndNotTheNextEntry) {
  EXPECT_FALSE(pages_.find(0, 48).exists());
  EXPECT_EQ(pages_.id(0, 3), kUnassignedPage);
  EXPECT_FALSE(pages_.find(1, std::int64_t{1} << 40).exists());
}

TEST_F(PageCursorTest, SlotOfATokenWithoutPageIsStillItsPlaceInThePage) {
  EXPECT_EQ(pages_.find(0, 37).slot, 5);
}

TEST_F(PageCursorTest, SequenceAloneIsSequenceZero) {
  for (std::int64_t position = 0; position < 60; ++position) {
    EXPECT_EQ(pages_.of_sequence(1).find(0, position), pages_.find(1, position));
  }
}

TEST_F(PageCursorTest, PageSizesThatAreNoPowersOfTwo) {
  pages_.page_size = 7;
  EXPECT_EQ(pages_.find(0, 13), (PageSlot{.page = 0, .slot = 6}));
  EXPECT_EQ(pages_.find(1, 14), (PageSlot{.page = 2, .slot = 0}));
}

TEST_F(PageCursorTest, GatherSeesTheEntriesOfItsSequence) {
  const std::array<std::int64_t, 2> columns = {2, 0};
  const auto found = pages_.of_sequence(1).gather(
      columns, [](const std::uint32_t* entries, const std::array<std::int64_t, 2>& wanted) {
        return std::array{entries[wanted[0]], entries[wanted[1]]};
      });
  EXPECT_EQ(found, (std::array{2u, 7u}));
}

}  // namespace
}  // namespace quire
