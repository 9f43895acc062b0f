// SPDX-License-Identifier: Apache-2.0
// Masks as intervals of keys, against the oracle's masks. Pure, so it needs no GPU.
#include "cuda/common/mask/visible_range.h"

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
        Mask::causal() & Mask::tree(view)}) {
    EXPECT_NE(refuse_range(mask.summary()), "") << mask.describe();
  }
}

}  // namespace
}  // namespace quire::cuda
