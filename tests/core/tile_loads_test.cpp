// SPDX-License-Identifier: Apache-2.0
#include "quire/tile_loads.h"

#include <vector>

#include "gtest/gtest.h"

namespace quire {
namespace {

template <int kRows, int kPageSize>
std::vector<TileLoad> list(const TileLoads<kRows, kPageSize>& loads) {
  return {loads.loads, loads.loads + loads.count};
}
using Loads = std::vector<TileLoad>;

constexpr PagedRowIndices<256, 64> kFourPages{{1000, 5000, 3000, 9000}};
constexpr PagedRowIndices<256, 64, CtaPair::leader> kLeader{{1000, 5000, 3000, 9000}};
constexpr PagedRowIndices<256, 64, CtaPair::peer> kPeer{{1000, 5000, 3000, 9000}};

TEST(KLoads, OnePerPage) {
  EXPECT_EQ(list(k_loads(kFourPages)),
            (Loads{{1000, 0, 64}, {5000, 64, 64}, {3000, 128, 64}, {9000, 192, 64}}));
}

TEST(KLoads, PairSplitsThePagesBetweenLeaderAndPeer) {
  EXPECT_EQ(list(k_loads(kLeader)), (Loads{{1000, 0, 64}, {5000, 64, 64}}));
  EXPECT_EQ(list(k_loads(kPeer)), (Loads{{3000, 0, 64}, {9000, 64, 64}}));
}

TEST(KLoads, PeerOfAOnePageTileStartsHalfATileFurther) {
  constexpr PagedRowIndices<128, 256, CtaPair::peer> rows{{4096 + 128}};
  EXPECT_EQ(list(k_loads(rows)), (Loads{{4096 + 128 + 64, 0, 64}}));
}

TEST(KLoads, PartialTileStopsAtTheLastPageWithKeys) {
  EXPECT_EQ(list(k_loads(kFourPages, 65)), (Loads{{1000, 0, 64}, {5000, 64, 64}}));
  EXPECT_EQ(list(k_loads(kFourPages, 64)), (Loads{{1000, 0, 64}}));
}

TEST(KLoads, PeerWithoutKeysIssuesNothing) {
  EXPECT_TRUE(list(k_loads(kPeer, 128)).empty());
  EXPECT_EQ(k_loads(kPeer, 128).expected_bytes(256), 0);
  EXPECT_EQ(list(k_loads(kPeer, 129)), (Loads{{3000, 0, 64}}));
}

TEST(KLoads, IssueCountIsTheNumberOfValidPages) {
  for (int keys = 0; keys <= 256; ++keys) {
    EXPECT_EQ(k_loads(kFourPages, keys).count, valid_pages(0, keys, 256, 64)) << keys;
  }
}

TEST(VLoads, SubTilesTakeTheirOwnPages) {
  EXPECT_EQ(list(v_loads<2>(kFourPages, 0)), (Loads{{1000, 0, 64}, {5000, 64, 64}}));
  EXPECT_EQ(list(v_loads<2>(kFourPages, 1)), (Loads{{3000, 0, 64}, {9000, 64, 64}}));
}

TEST(VLoads, MoreSubTilesThanPagesSplitEachPage) {
  constexpr PagedRowIndices<256, 128> rows{{1000, 5000}};
  EXPECT_EQ(list(v_loads<4>(rows, 1)), (Loads{{1064, 0, 64}}));
  EXPECT_EQ(list(v_loads<4>(rows, 2)), (Loads{{5000, 0, 64}}));
  EXPECT_EQ(list(v_loads<4>(rows, 3)), (Loads{{5064, 0, 64}}));
}

TEST(VLoads, SubTileOfAOnePageTileKeepsItsOffset) {
  constexpr PagedRowIndices<256, 0> rows{{77}};
  EXPECT_EQ(list(v_loads<2>(rows, 1)), (Loads{{77 + 128, 0, 128}}));
}

TEST(VLoads, PeerLoadsTheSameRowsAsTheLeader) {
  EXPECT_EQ(list(v_loads<1>(kPeer, 0)), list(v_loads<1>(kLeader, 0)));
}

TEST(VLoads, ZeroFillCoversTheSlotsBehindTheLastKey) {
  const auto loads = v_loads<1>(kFourPages, 0, 65, TileTail::zero_fill);
  EXPECT_EQ(
      list(loads),
      (Loads{{1000, 0, 64}, {5000, 64, 64}, {kUnassignedRow, 128, 64}, {kUnassignedRow, 192, 64}}));
}

TEST(ExpectedBytes, CountWhatIsIssuedNotTheWholeTile) {
  constexpr int kRowBytes = 128 * 2;
  EXPECT_EQ(k_loads(kFourPages).expected_bytes(kRowBytes), 256 * kRowBytes);
  EXPECT_EQ(k_loads(kFourPages, 65).expected_bytes(kRowBytes), 128 * kRowBytes);
  EXPECT_EQ(v_loads<1>(kFourPages, 0, 65, TileTail::zero_fill).expected_bytes(kRowBytes),
            256 * kRowBytes);
}

TEST(ExpectedBytes, EveryLoadHasTheRowsOfTheDescriptorsBox) {
  const auto loads = v_loads<2>(kFourPages, 1);
  EXPECT_EQ(decltype(loads)::kBoxRows, 64);
  for (int i = 0; i < loads.count; ++i) EXPECT_EQ(loads.loads[i].rows, decltype(loads)::kBoxRows);
  EXPECT_EQ((decltype(k_loads(kPeer))::kBoxRows), 64);
  EXPECT_EQ((TileLoads<64, 256>::kBoxRows), 64);
}

}  // namespace
}  // namespace quire
