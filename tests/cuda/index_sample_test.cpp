// SPDX-License-Identifier: Apache-2.0
// The order in which an indexer's thread block scores the tiles of a split: pure, so it needs no GPU.
#include "cuda/sm90/mla_indexer/config.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

namespace quire::cuda::sm90::mla_indexer {
namespace {

std::vector<int> order_of(int tiles) {
  std::vector<int> order;
  for (int i = 0; i < tiles; ++i) order.push_back(tile_in_order(i, tiles, sample_stride(tiles)));
  return order;
}

TEST(IndexSample, HasEveryTileOnce) {
  for (int tiles = 1; tiles < 3000; ++tiles) {
    std::vector<int> order = order_of(tiles);
    std::sort(order.begin(), order.end());
    for (int i = 0; i < tiles; ++i) ASSERT_EQ(order[static_cast<std::size_t>(i)], i) << tiles;
  }
}

TEST(IndexSample, ShortSplitsHaveNone) {
  constexpr int kRoom = IndexConfig::kPoolLimit / IndexConfig::kTileKeys;
  EXPECT_EQ(sample_stride(kRoom), 0);
  EXPECT_GT(sample_stride(kRoom + 1), 1);
}

// Nowhere more tiles in a row without one than between two others, and not more than a pool holds.
TEST(IndexSample, IsSpreadOverTheSplit) {
  for (int tiles = 49; tiles < 3000; ++tiles) {
    const int stride = sample_stride(tiles);
    const int sampled = sample_tiles(tiles, stride);
    ASSERT_LE(sampled, IndexConfig::kSampleTiles) << tiles;
    ASSERT_LT(sampled, tiles);
    const std::vector<int> order = order_of(tiles);
    for (int i = 0; i < sampled; ++i) ASSERT_EQ(order[static_cast<std::size_t>(i)], i * stride);
    ASSERT_GT(sampled * stride, tiles - stride) << tiles;
    ASSERT_TRUE(std::is_sorted(order.begin() + sampled, order.end())) << tiles;
  }
}

}  // namespace
}  // namespace quire::cuda::sm90::mla_indexer
