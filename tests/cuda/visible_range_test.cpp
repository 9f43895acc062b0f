// SPDX-License-Identifier: Apache-2.0
// Masks as intervals of keys, against the oracle's masks. Pure, so it needs no GPU.
#include "cuda/common/mask/visible_range.h"

#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "reference/mask.h"

namespace quire::cuda {
namespace {

constexpr int kKeys = 40;

std::vector<Mask> interval_masks() {
  const Mask causal = Mask::causal();
  return {Mask::full(),
          causal,
          Mask::sliding_window(1),
          Mask::sliding_window(7),
          Mask::sliding_window(1 << 20),
          Mask::sliding_window(std::int64_t{1} << 40),
          Mask::chunked(8),
          Mask::chunked(13),
          causal & Mask::sliding_window(5),
          Mask::sliding_window(9) & causal & Mask::chunked(16),
          (causal & Mask::full()) & (Mask::sliding_window(12) & Mask::sliding_window(3))};
}

TEST(VisibleRangeTest, ShowsTheKeysOfTheMask) {
  for (const Mask& mask : interval_masks()) {
    const VisibleRange range = visible_range(mask.summary());
    EXPECT_EQ(refuse_range(mask.summary()), "") << mask.describe();
    for (int position = 0; position < kKeys; ++position) {
      const KeyInterval keys = range.of(position, kKeys);
      const reference::Token token{
          .index = position, .sequence = 0, .local = position, .position = position};
      for (int key = 0; key < kKeys; ++key) {
        EXPECT_EQ(key >= keys.first && key < keys.end, reference::is_visible(mask, token, key))
            << mask.describe() << ", query " << position << ", key " << key;
      }
    }
  }
}

// A tile's blocks of keys are found from its first and its last row.
TEST(VisibleRangeTest, BothEndsGrowWithThePosition) {
  for (const Mask& mask : interval_masks()) {
    const VisibleRange range = visible_range(mask.summary());
    for (int position = 1; position < kKeys; ++position) {
      EXPECT_GE(range.of(position, kKeys).first, range.of(position - 1, kKeys).first);
      EXPECT_GE(range.of(position, kKeys).end, range.of(position - 1, kKeys).end);
    }
  }
}

TEST(VisibleRangeTest, LeavesOtherMasksToOthers) {
  std::vector<std::uint8_t> bits(4, 1);
  const TensorView view = TensorView::contiguous(bits.data(), DType::u8, {2, 2});
  for (const Mask& mask :
       {Mask::tree(view), Mask::causal() | Mask::chunked(4), Mask::chunked(4) & Mask::chunked(6),
        Mask::causal() & Mask::tree(view), Mask::key_intervals({}, {})}) {
    EXPECT_NE(refuse_range(mask.summary()), "") << mask.describe();
  }
}

// Bounds may be anything: what is left is never more than the mask's other parts show.
TEST(TokenIntervalsTest, NarrowWhatTheMaskShows) {
  constexpr std::int32_t kLow = std::numeric_limits<std::int32_t>::min();
  constexpr std::int32_t kHigh = std::numeric_limits<std::int32_t>::max();
  std::int32_t bounds[][2] = {{0, kKeys}, {3, 9},  {9, 3},   {kLow, kHigh}, {kHigh, kLow},
                              {30, 99},   {-5, 2}, {20, 20}, {kLow, 11},    {12, kHigh}};
  constexpr std::int64_t kTokens = std::ssize(bounds);
  TensorView begin = TensorView::contiguous(bounds, DType::i32, {kTokens, 2});
  begin.rank = 1;
  TensorView end = begin;
  end.data = &bounds[0][1];
  const Mask own = Mask::key_intervals(begin, end);
  for (const Mask& other : interval_masks()) {
    const Mask mask = other & own;
    EXPECT_EQ(refuse_narrowed_range(mask.summary()), "") << mask.describe();
    EXPECT_NE(refuse_range(mask.summary()), "") << mask.describe();
    const VisibleRange range = visible_range(mask.summary());
    const TokenIntervals intervals = token_intervals(mask);
    for (int index = 0; index < kTokens; ++index) {
      const int position = 4 * index;
      const KeyInterval keys = intervals.narrow(range.of(position, kKeys), index);
      EXPECT_GE(keys.first, 0);
      EXPECT_GE(keys.end, 0);
      const reference::Token token{
          .index = index, .sequence = 0, .local = index, .position = position};
      for (int key = 0; key < kKeys; ++key) {
        EXPECT_EQ(key >= keys.first && key < keys.end, reference::is_visible(mask, token, key))
            << mask.describe() << ", token " << index << ", key " << key;
      }
    }
  }
  EXPECT_NE(refuse_narrowed_range((own & own).summary()), "");
  EXPECT_NE(refuse_narrowed_range((own | Mask::causal()).summary()), "");
  EXPECT_NE(refuse_narrowed_range((own & Mask::tree({})).summary()), "");
}

}  // namespace
}  // namespace quire::cuda
