// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/mla_indexer/plan_index.h"

#include <gtest/gtest.h>

namespace quire::cuda::hopper {
namespace {

constexpr int kSms = 132;
constexpr std::int64_t kPage = 64;

MlaIndexerProblem decode_problem(std::int64_t tokens, std::int64_t keys) {
  return {.ragged = {.tokens = tokens, .batch = tokens},
          .cache = {.page_size = kPage, .max_pages = (keys + kPage - 1) / kPage},
          .heads = 64,
          .head_dim = 128,
          .top_k = 2048,
          .mask = "causal"};
}

TEST(PlanIndex, ShortRowsAreTakenWholeByClustersThatAllRunAtOnce) {
  const auto size = [](std::int64_t tokens) {
    return plan_index(decode_problem(tokens, 8192), kSms).cluster.size;
  };
  EXPECT_EQ(size(1), 16);
  EXPECT_EQ(size(7), 16);
  EXPECT_EQ(size(8), 8);
  EXPECT_EQ(size(15), 8);
  EXPECT_EQ(size(16), 4);
  EXPECT_EQ(size(64), 2);
  EXPECT_EQ(size(66), 2);
  EXPECT_EQ(size(132), 1);
  EXPECT_EQ(size(133), 0);
}

TEST(PlanIndex, RoomForAllKeysIsRoomForWholeTiles) {
  for (const std::int64_t keys : {1, 64, 65, 8191, 32768}) {
    const IndexPlan plan = plan_index(decode_problem(1, keys), kSms);
    ASSERT_TRUE(plan.takes_whole_rows()) << keys;
    EXPECT_EQ(plan.cluster.capacity % IndexConfig::kTileKeys, 0);
    EXPECT_GE(plan.cluster.capacity, keys);
  }
}

TEST(PlanIndex, WhatMayBeLongIsCutIntoPieces) {
  EXPECT_FALSE(plan_index(decode_problem(1, 1 << 20), kSms).takes_whole_rows());
  MlaIndexerProblem problem = decode_problem(1, 1 << 20);
  problem.ragged.max_keys = 8192;  // the table has room for more, but no sequence is longer
  EXPECT_EQ(plan_index(problem, kSms).cluster.size, 16);
}

TEST(PlanIndex, SeveralNewTokensShareKeyTiles) {
  MlaIndexerProblem problem = decode_problem(2, 8192);
  problem.ragged.batch = 1;
  EXPECT_FALSE(plan_index(problem, kSms).takes_whole_rows());
}

TEST(PlanIndex, OneLongRowWouldKeepAThreadBlockBusyForLongerThanAMerge) {
  EXPECT_TRUE(plan_index(decode_problem(66, 32768), kSms).takes_whole_rows());
  EXPECT_FALSE(plan_index(decode_problem(67, 32768), kSms).takes_whole_rows());
}

}  // namespace
}  // namespace quire::cuda::hopper
