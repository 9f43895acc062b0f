// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_indexer/plan_index.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "cuda/sm90/mla_indexer/params.h"

namespace quire::cuda::sm90::mla_indexer {
namespace {

constexpr int kSms = 132;
constexpr std::int64_t kPage = 64;

MlaIndexerProblem decode_problem(std::int64_t tokens, std::int64_t keys) {
  return {.ragged = {.tokens = tokens, .batch = tokens},
          .cache = {.page_size = kPage, .max_pages = (keys + kPage - 1) / kPage},
          .heads = 64,
          .head_dim = 128,
          .top_k = 2048,
          .mask = Mask::causal().summary()};
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
    const IndexPlan plan = plan_index(decode_problem(64, keys), kSms);
    ASSERT_TRUE(plan.takes_whole_rows()) << keys;
    EXPECT_EQ(plan.cluster.capacity % IndexConfig::kTileKeys, 0);
    EXPECT_GE(plan.cluster.capacity, keys);
  }
}

TEST(PlanIndex, BatchInvariantHasOneOrderOfHeadsForAnyNumberOfTokens) {
  for (const std::int64_t tokens : {1, 2, 64, 500}) {
    for (const std::int64_t keys : {1000, 8192, 131072}) {
      MlaIndexerProblem problem = decode_problem(tokens, keys);
      problem.batch_invariant = true;
      const IndexPlan plan = plan_index(problem, kSms);
      EXPECT_EQ(plan.variant->name, "h64_d128_t2");
      EXPECT_FALSE(plan.takes_whole_rows() || plan.has_groups()) << "these have one token";
    }
  }
}

TEST(PlanIndex, WhatMayBeLongIsCutIntoSplits) {
  EXPECT_FALSE(plan_index(decode_problem(1, 1 << 20), kSms).takes_whole_rows());
  EXPECT_FALSE(plan_index(decode_problem(1, 1 << 22), kSms).has_groups());
  MlaIndexerProblem problem = decode_problem(1, 1 << 20);
  problem.ragged.max_keys = 8192;  // the table has room for more, but no sequence is longer
  EXPECT_EQ(plan_index(problem, kSms).cluster.size, 16);
}

TEST(PlanIndex, AFewLongRowsAreTakenByGroups) {
  EXPECT_EQ(plan_index(decode_problem(1, 131072), kSms).group.parts, kSms);
  EXPECT_EQ(plan_index(decode_problem(16, 131072), kSms).group.parts, kSms);
  EXPECT_FALSE(plan_index(decode_problem(33, 65536), kSms).has_groups());
  EXPECT_TRUE(plan_index(decode_problem(1, 16384), kSms).has_groups());
  EXPECT_FALSE(plan_index(decode_problem(1, 16384), kSms).takes_whole_rows());
  EXPECT_FALSE(plan_index(decode_problem(1, 8192), kSms).has_groups());
  EXPECT_FALSE(plan_index(decode_problem(8, 1 << 20), kSms).has_groups()) << "too many keys each";
}

// Whatever the lengths are: the cuts follow from them on the device.
TEST(PlanIndex, AGroupsThreadBlocksHaveRoomForTheirKeys) {
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    const auto rows = static_cast<unsigned>(random() % 32 + 1);
    const auto most = static_cast<unsigned>(random() % 900 + 600);
    const IndexPlan plan = plan_index(decode_problem(rows, most * kPage), kSms);
    if (!plan.has_groups()) continue;
    std::vector<unsigned> ends{0};
    for (unsigned row = 0; row < rows; ++row) {
      ends.push_back(ends.back() + (random() % 3 == 0 ? random() % 5 : random() % (most + 1)));
    }
    const GroupCuts cuts{.spare = kSms - rows, .total = std::max(ends.back(), 1u)};
    ASSERT_EQ(cuts.begin(0, 0), 0);
    ASSERT_LE(cuts.begin(rows, ends.back()), kSms);
    for (unsigned row = 0; row < rows; ++row) {
      const int size = cuts.begin(row + 1, ends[row + 1]) - cuts.begin(row, ends[row]);
      const auto tiles = static_cast<int>(ends[row + 1] - ends[row]);
      ASSERT_GE(size, 1);
      ASSERT_LE((tiles + size - 1) / size * IndexConfig::kTileKeys, plan.group.capacity);
    }
  }
}

TEST(PlanIndex, WhereAStreamHasFewSmsGroupsBecomeSplitsAndClustersSmaller) {
  constexpr StreamShare kAll{.num_sms = kSms, .max_cluster = 16};
  constexpr StreamShare kPart{.num_sms = kSms - 8, .max_cluster = 8};
  const IndexPlan groups = plan_index(decode_problem(1, 131072), kSms);
  EXPECT_TRUE(fit_share(groups, kAll).has_groups());
  EXPECT_FALSE(fit_share(groups, kPart).has_groups());
  EXPECT_FALSE(fit_share(groups, kPart).takes_whole_rows());
  const IndexPlan clusters = plan_index(decode_problem(1, 8192), kSms);
  EXPECT_EQ(fit_share(clusters, kAll).cluster.size, 16);
  EXPECT_EQ(fit_share(clusters, kPart).cluster.size, 8);
  EXPECT_EQ(fit_share(clusters, {.num_sms = 2, .max_cluster = 1}).cluster.size, 1);
  EXPECT_EQ(fit_share(clusters, kPart).cluster.capacity, clusters.cluster.capacity);
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
}  // namespace quire::cuda::sm90::mla_indexer
