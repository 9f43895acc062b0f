// SPDX-License-Identifier: Apache-2.0
#include "quire/mask_columns.h"

#include <ostream>

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(MaskAlignment, CausalFullAndJoinsStartAtTiles) {
  for (const MaskKind kind :
       {MaskKind::causal, MaskKind::full, MaskKind::tree, MaskKind::all_of, MaskKind::any_of}) {
    EXPECT_EQ(start_column_alignment(kind, 128, 16), 128);
    EXPECT_EQ(start_column_alignment(kind, 128, 256), 128);
  }
}

TEST(MaskAlignment, WindowsAndChunksStartAtPagesInsideATile) {
  for (const MaskKind kind : {MaskKind::sliding_window, MaskKind::chunked}) {
    EXPECT_EQ(start_column_alignment(kind, 128, 16), 16);
    EXPECT_EQ(start_column_alignment(kind, 128, 256), 128);
    EXPECT_EQ(start_column_alignment(kind, 128, 0), 128);
    EXPECT_EQ(start_column_alignment(kind, 128, 1), 128);
  }
}

TEST(MaskAlignment, SubRangeOfATilePromisesOnlyTheGcd) {
  EXPECT_EQ(sub_range_alignment(256, 128), 128);
  EXPECT_EQ(sub_range_alignment(64, 96), 32);
  EXPECT_EQ(sub_range_alignment(128, 128), 128);
}

// The oracle of this test: whether query q sees key k, straight from the definitions.
bool sees(const Mask& mask, std::int32_t index, std::int64_t q, std::int64_t k) {
  const Mask::Node& node = mask.nodes()[static_cast<std::size_t>(index)];
  switch (node.kind) {
    case MaskKind::full:
    case MaskKind::tree:
      return true;
    case MaskKind::causal:
      return k <= q;
    case MaskKind::sliding_window:
      return (q > k ? q - k : k - q) < node.size;
    case MaskKind::chunked:
      return q / node.size == k / node.size;
    case MaskKind::all_of:
      return sees(mask, node.left, q, k) && sees(mask, node.right, q, k);
    case MaskKind::any_of:
      return sees(mask, node.left, q, k) || sees(mask, node.right, q, k);
  }
  return false;
}

struct NamedMask {
  const char* name;
  Mask mask;
  friend std::ostream& operator<<(std::ostream& out, const NamedMask& named) {
    return out << named.name;
  }
};

class StartColumn : public ::testing::TestWithParam<NamedMask> {};

TEST_P(StartColumn, HidesNoVisibleKeyAndKeepsItsAlignment) {
  const Mask& mask = GetParam().mask;
  const auto root = static_cast<std::int32_t>(mask.nodes().size()) - 1;
  for (const int page_size : {0, 16, 64, 256}) {
    for (std::int64_t query = 0; query < 400; query += 13) {
      const std::int64_t start = start_column(mask, query, 64, page_size);
      EXPECT_EQ(start % start_column_alignment(mask.root().kind, 64, page_size), 0);
      for (std::int64_t key = 0; key < start; ++key) {
        for (std::int64_t later = query; later < query + 40; ++later) {
          ASSERT_FALSE(sees(mask, root, later, key))
              << mask.describe() << " " << later << " " << key;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Masks, StartColumn,
    ::testing::Values(NamedMask{"causal", Mask::causal()}, NamedMask{"full", Mask::full()},
                      NamedMask{"window", Mask::sliding_window(50)},
                      NamedMask{"chunked", Mask::chunked(70)},
                      NamedMask{"causal_window", Mask::causal() & Mask::sliding_window(33)},
                      NamedMask{"window_or_chunked", Mask::sliding_window(20) | Mask::chunked(100)},
                      NamedMask{"causal_and_either",
                                Mask::causal() & (Mask::sliding_window(9) | Mask::chunked(64))}));

TEST(StartColumnValue, SkipsWholePagesBehindTheWindow) {
  EXPECT_EQ(start_column(Mask::sliding_window(32), 300, 128, 16), 256);  // first visible key is 269
  EXPECT_EQ(start_column(Mask::sliding_window(32), 300, 128, 0), 256);
  EXPECT_EQ(start_column(Mask::sliding_window(32), 310, 128, 16), 272);
  EXPECT_EQ(start_column(Mask::causal() & Mask::sliding_window(32), 310, 128, 16), 256);
  EXPECT_EQ(start_column(Mask::chunked(100), 350, 128, 64), 256);
  EXPECT_EQ(start_column(Mask::sliding_window(32), 10, 128, 16), 0);
}

}  // namespace
}  // namespace quire
