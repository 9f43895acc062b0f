// SPDX-License-Identifier: Apache-2.0
// The indexer's list of work: closed forms against sums, for keys that stand for one token or several.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <tuple>

#include "cuda/sm90/mla_indexer/split_schedule.h"

namespace quire::cuda::sm90::mla_indexer {
namespace {

constexpr int kTopK = 64;

struct Lengths {
  std::array<std::uint32_t, 2> offsets{};
  std::array<std::uint32_t, 1> cached{};

  Lengths(std::uint32_t cached_tokens, std::uint32_t new_tokens)
      : offsets{0, new_tokens}, cached{cached_tokens} {}

  IndexBatch batch(int tokens_per_key, int block_tokens, bool is_causal) const {
    return {.row_offsets = offsets.data(),
            .cache_lengths = cached.data(),
            .size = 1,
            .tokens = static_cast<int>(offsets[1]),
            .block_tokens = block_tokens,
            .top_k = kTopK,
            .is_causal = is_causal,
            .tokens_per_key = tokens_per_key};
  }
};

using Shape = std::tuple<int, int, bool>;  // tokens of a key, tokens of a block, causal

class IndexSchedule : public testing::TestWithParam<Shape> {
 protected:
  IndexBatch batch_of(const Lengths& lengths) const {
    const auto [tokens_per_key, block_tokens, is_causal] = GetParam();
    return lengths.batch(tokens_per_key, block_tokens, is_causal);
  }
};

TEST_P(IndexSchedule, CostIsThatOfAllBlocksBefore) {
  for (const std::uint32_t cached : {0U, 1U, 63U, 64U, 700U, 9001U}) {
    const Lengths lengths(cached, 1000);
    const IndexBatch batch = batch_of(lengths);
    const SequenceBlocks work = sequence_blocks(batch, 0);
    std::int64_t sum = 0;
    for (int block = work.first_block; block < work.blocks; ++block) {
      ASSERT_EQ(cost_before(batch, work, block), sum) << cached << ", block " << block;
      ASSERT_EQ(block_at(batch, work, sum), block);
      sum += kBlockCost + tiles_of(batch, work, block);
    }
    EXPECT_EQ(cost_of(batch, work), sum) << cached;
  }
}

// A token sees the keys whose last token has come; those of at most top_k keys are not scored.
TEST_P(IndexSchedule, BlocksBeforeTheFirstSeeNoMoreThanTopK) {
  const auto [tokens_per_key, block_tokens, is_causal] = GetParam();
  for (const std::uint32_t cached : {0U, 1U, 63U, 64U, 700U, 9001U}) {
    const Lengths lengths(cached, 1000);
    const IndexBatch batch = batch_of(lengths);
    const SequenceBlocks work = sequence_blocks(batch, 0);
    EXPECT_EQ(work.num_keys(), static_cast<int>(cached + 1000) / tokens_per_key);
    for (int index = 0; index < work.tokens; ++index) {
      const int tokens =
          is_causal ? static_cast<int>(cached) + index + 1 : static_cast<int>(cached) + 1000;
      const int bound = bound_of(batch, work, index);
      ASSERT_EQ(bound, tokens / tokens_per_key);
      const int block = index / block_tokens;
      const bool is_scored = work.has_work() && block >= work.first_block;
      if (bound > kTopK) {
        ASSERT_TRUE(is_scored) << cached << ", token " << index;
        ASSERT_GE(tiles_of(batch, work, block) * kIndexTileKeys, bound);
      }
    }
    if (work.has_work()) {  // nor is a block listed in which nobody sees more
      const int last = std::min((work.first_block + 1) * block_tokens, work.tokens) - 1;
      EXPECT_GT(bound_of(batch, work, last), kTopK);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, IndexSchedule,
                         testing::Combine(testing::Values(1, 2, 3, 4, 7, 128),
                                          testing::Values(1, 2, 16, 64), testing::Bool()));

}  // namespace
}  // namespace quire::cuda::sm90::mla_indexer
