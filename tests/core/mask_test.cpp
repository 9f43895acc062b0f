// SPDX-License-Identifier: Apache-2.0
#include "quire/mask.h"

#include <gtest/gtest.h>

#include "quire/error.h"

namespace quire {
namespace {

TEST(Mask, DefaultIsCausal) {
  EXPECT_EQ(Mask().describe(), "causal");
}

TEST(Mask, CombinationsPrintAsWritten) {
  EXPECT_EQ((Mask::causal() & Mask::sliding_window(1024)).describe(),
            "causal & sliding_window(1024)");
  EXPECT_EQ((Mask::causal() & (Mask::chunked(8) | Mask::sliding_window(4))).describe(),
            "causal & (chunked(8) | sliding_window(4))");
  EXPECT_EQ((Mask::full() | Mask::causal() | Mask::chunked(2)).describe(),
            "full | causal | chunked(2)");
}

TEST(Mask, ChildrenStandBeforeTheirParents) {
  const Mask mask = (Mask::causal() & Mask::chunked(4)) | (Mask::full() & Mask::sliding_window(2));
  const std::vector<Mask::Node>& nodes = mask.nodes();
  ASSERT_EQ(nodes.size(), 7u);
  for (std::int32_t i = 0; i < 7; ++i) {
    EXPECT_LT(nodes[i].left, i);
    EXPECT_LT(nodes[i].right, i);
  }
  EXPECT_EQ(mask.root().kind, MaskKind::any_of);
  EXPECT_EQ(nodes[mask.root().left].kind, MaskKind::all_of);
  EXPECT_EQ(nodes[nodes[mask.root().right].right].size, 2);
}

// Bounds of key intervals are device data: what planners know is what the other parts say.
TEST(Mask, KeyIntervalsBoundNothingInASummary) {
  const Mask own = Mask::key_intervals({}, {});
  EXPECT_EQ((own & Mask::causal()).describe(), "key_intervals & causal");
  EXPECT_EQ(own.summary(), (MaskSummary{.key_intervals = 1}));
  EXPECT_EQ((Mask::causal() & own & Mask::sliding_window(8) & own).summary(),
            (MaskSummary{.ahead = 0, .window = 8, .key_intervals = 2, .masks = 4}));
  EXPECT_EQ((own | Mask::causal()).summary(),
            (MaskSummary{.is_interval = false, .key_intervals = 1, .masks = 2}));
  EXPECT_FALSE((own & Mask::causal()).summary().is_causal_or_full());
  EXPECT_TRUE((Mask::full() & Mask::causal()).summary().is_causal_or_full());
}

TEST(Mask, KeyIntervalsKeepBothBounds) {
  std::int32_t bounds[2] = {3, 5};
  const TensorView begin = TensorView::contiguous(bounds, DType::i32, {1});
  const TensorView end = TensorView::contiguous(bounds + 1, DType::i32, {1});
  const Mask mask = Mask::causal() & Mask::key_intervals(begin, end);
  const Mask::Node& node = mask.nodes()[1];
  EXPECT_EQ(node.kind, MaskKind::key_intervals);
  EXPECT_EQ(node.begin.data, bounds);
  EXPECT_EQ(node.end.data, bounds + 1);
}

class MaskParseTest : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(MaskParseTest, ReadsTheSpelling) {
  EXPECT_EQ(Mask::parse(GetParam().first).describe(), GetParam().second);
}

INSTANTIATE_TEST_SUITE_P(
    Table, MaskParseTest,
    testing::Values(std::pair{"causal", "causal"}, std::pair{"null", "full"},
                    std::pair{"full", "full"}, std::pair{"sliding_window:16", "sliding_window(16)"},
                    std::pair{"sliding_window_causal:16", "causal & sliding_window(16)"},
                    std::pair{"chunked:8", "chunked(8)"},
                    std::pair{"chunked_causal:8", "causal & chunked(8)"}));

class MaskRejectTest : public testing::TestWithParam<const char*> {};

TEST_P(MaskRejectTest, NamesTheBadText) {
  try {
    Mask::parse(GetParam());
    FAIL() << "accepted " << GetParam();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam()), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, MaskRejectTest,
                         testing::Values("", "casual", "chunked", "chunked:", "chunked:0",
                                         "chunked:-4", "chunked:8x", "tree:8"));

// Kernels walk masks on the stack, and a join copies what it joins.
TEST(Mask, JoinsEndAtTheirLimit) {
  Mask left_deep;
  Mask right_deep;
  for (int i = 1; i < 64; ++i) {
    left_deep = left_deep & Mask::chunked(i);
    right_deep = Mask::chunked(i) | right_deep;
  }
  EXPECT_EQ(left_deep.nodes().size(), static_cast<std::size_t>(Mask::kMaxNodes));
  EXPECT_TRUE(left_deep.describe().ends_with(" & chunked(63)"));
  EXPECT_TRUE(right_deep.describe().starts_with("chunked(63) | "));
  for (const Mask& mask : {left_deep, right_deep}) {
    try {
      static_cast<void>(mask & Mask::causal());
      FAIL() << "joined 65 masks";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_value);
      EXPECT_STREQ(error.what(), "mask: 'mask' must be of at most 64 masks joined, got 65");
    }
  }
}

}  // namespace
}  // namespace quire
