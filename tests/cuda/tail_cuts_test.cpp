// SPDX-License-Identifier: Apache-2.0
// How the last tiles of a prefill are cut: pure, so it needs no GPU.
#include "cuda/common/prefill_attention/tail_cuts.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace quire::cuda {
namespace {

struct Split {
  int begin;
  int end;
  TileSplits place;
};

// Splits of every tile of the tail, by the order of parts. `lengths`: blocks of keys of the tiles.
std::vector<std::vector<Split>> splits_of(const TailCuts& cuts, const std::vector<int>& lengths) {
  std::vector<std::vector<Split>> splits(lengths.size());
  for (int part = 0; part < cuts.parts; ++part) {
    for (int tile = cuts.first_tile(part); tile < cuts.end_tile(part); ++tile) {
      const int blocks = lengths[static_cast<std::size_t>(tile)];
      const int begin = cuts.cut(part, tile, blocks);
      const int end = cuts.cut(part + 1, tile, blocks);
      if (end <= begin) continue;
      splits[static_cast<std::size_t>(tile)].push_back(
          {begin, end, tile_splits(cuts, part, tile, blocks)});
    }
  }
  return splits;
}

void expect_splits_of_a_tile(const std::vector<Split>& splits, int blocks, std::set<int>& slots) {
  const auto count = static_cast<int>(splits.size());
  int at = 0;
  for (int i = 0; i < count; ++i) {
    const Split& split = splits[static_cast<std::size_t>(i)];
    EXPECT_EQ(split.begin, at);
    at = split.end;
    EXPECT_EQ(split.place.count, count);
    if (count == 1) {
      EXPECT_EQ(split.place.slot, -1);
      continue;
    }
    EXPECT_GE(split.end - split.begin, kFewestSplitBlocks);
    EXPECT_EQ(split.place.slot_of(i), split.place.slot);
    EXPECT_TRUE(slots.insert(split.place.slot).second) << "slot " << split.place.slot;
  }
  EXPECT_EQ(at, blocks);
}

// Tiles of `blocks` blocks, every third shorter, as the last rows of other sequences are.
void expect_all_blocks_once(int tiles, int thread_blocks, int blocks, int slowness) {
  SCOPED_TRACE(testing::Message() << tiles << " tiles of " << blocks << " blocks on "
                                  << thread_blocks << ", " << slowness);
  const TailCuts cuts = cut_tail(tiles, thread_blocks, blocks, slowness);
  EXPECT_EQ(cuts.whole + cuts.tiles, tiles);
  EXPECT_LE(cuts.parts, thread_blocks);
  std::vector<int> lengths;
  for (int tile = 0; tile < cuts.tiles; ++tile) {
    lengths.push_back(tile % 3 == 2 ? std::max(1, blocks / (2 + tile)) : blocks);
  }
  std::set<int> slots;
  const auto splits = splits_of(cuts, lengths);
  for (std::size_t tile = 0; tile < lengths.size(); ++tile) {
    expect_splits_of_a_tile(splits[tile], lengths[tile], slots);
  }
  if (!slots.empty()) {
    EXPECT_GE(*slots.begin(), 0);
    EXPECT_LT(*slots.rbegin(), 2 * thread_blocks);
  }
}

TEST(TailCutsTest, EveryBlockOfEveryTileIsInOneSplit) {
  for (const int tiles : {1, 2, 3, 5, 16, 64, 115, 116, 131, 132, 133, 200, 263, 512, 1000}) {
    for (const int thread_blocks : {1, 4, 7, 114, 132}) {
      for (const int blocks : {1, 7, 8, 9, 13, 16, 31, 68, 256, 8192}) {
        for (const int slowness : {0, 5, 20, 100}) {
          expect_all_blocks_once(tiles, thread_blocks, blocks, slowness);
        }
      }
    }
  }
}

TEST(TailCutsTest, CutsWhereThreadBlocksWouldWait) {
  // 32 heads of 2048 tokens over 32768 keys on 132 multiprocessors: 3 tiles each, 116 more.
  EXPECT_EQ(cut_tail(512, 132, 256, 20).parts, 132);
  EXPECT_EQ(cut_tail(512, 132, 256, 20).tiles, 116);
  // One tile for all.
  EXPECT_EQ(cut_tail(1, 132, 256, 20).parts, 32);
}

TEST(TailCutsTest, LaterPartsAreShorter) {
  const TailCuts cuts = cut_tail(512, 132, 256, 20);
  const auto length = [&](int part) { return cuts.begin(part + 1) - cuts.begin(part); };
  EXPECT_LE(length(0), TailCuts::kUnits);
  EXPECT_GT(length(0), length(66));
  EXPECT_GT(length(66), length(131));
  // 3 tiles before it: as late as 2 % of them.
  EXPECT_NEAR(length(66) - length(131), 0.02 * 3 * TailCuts::kUnits, 8.0);
  EXPECT_EQ(cuts.begin(132), 116 * TailCuts::kUnits);
}

TEST(TailCutsTest, LeavesWholeWhatIsShortOrEven) {
  EXPECT_EQ(cut_tail(528, 132, 256, 20).tiles, 0);
  EXPECT_EQ(cut_tail(512, 132, 68, 20).tiles, 0);
  EXPECT_EQ(cut_tail(131, 132, 256, 20).tiles, 0);
  EXPECT_EQ(cut_tail(0, 132, 1, 20).tiles, 0);
}

}  // namespace
}  // namespace quire::cuda
