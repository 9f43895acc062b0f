// SPDX-License-Identifier: Apache-2.0
#include "reference/select_blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "quire/paged_kv_operand.h"
#include "support/attention_inputs.h"

namespace quire::reference {
namespace {

using test::CacheOptions;
using test::HostTensor;
using test::kTestLayer;
using Ids = std::vector<std::int32_t>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// One sequence and head of one column: with q = 1 a key is its own score.
class ScoredBlocks {
 public:
  ScoredBlocks(std::int64_t cached, std::int64_t added, std::int64_t max_blocks)
      : inputs_({.cache_lengths = {static_cast<std::uint32_t>(cached)},
                 .new_tokens = {static_cast<std::uint32_t>(added)},
                 .row_format = RowFormat::uniform(DType::f32, 1),
                 .page_size = 4,
                 .num_kv_heads = 1},
                1, DType::f32),
        out_(DType::i32, {added, 1, max_blocks}) {
    args.cache = inputs_.cache.view();
    args.q = inputs_.q.view();
    for (std::int64_t token = 0; token < added; ++token) args.q.store({token, 0, 0}, 1.0);
    args.row_offsets = inputs_.cache.row_offsets();
    args.layer = kTestLayer;
    args.block_size = 2;
    args.local_blocks = 0;
    args.out = out_.view();
  }

  void set_scores(const std::vector<double>& scores) {
    const PagedKvOperand operand(args.cache.key(kTestLayer));
    const KvOperandRef keys = operand;
    for (std::size_t t = 0; t < scores.size(); ++t) {
      keys.layout().store(keys.row(0, 0, static_cast<std::int64_t>(t)), 0, scores[t]);
    }
  }
  Ids run(std::int64_t token = 0) {
    reference::select_blocks(args);
    EXPECT_EQ(fault(row(token), token), "");
    return row(token);
  }
  std::string fault(const Ids& ids, std::int64_t token = 0) const {
    return block_selection_fault(args, token, 0, ids);
  }

  SelectBlocksArgs args{};

 private:
  Ids row(std::int64_t token) const {
    Ids ids;
    for (std::int64_t slot = 0; slot < args.out.shape[2]; ++slot) {
      ids.push_back(static_cast<std::int32_t>(args.out.load({token, 0, slot})));
    }
    return ids;
  }

  test::FlashInputs inputs_;
  HostTensor out_;
};

TEST(SelectBlocksTest, BlocksOfTheHighestKeysAscend) {
  ScoredBlocks blocks(9, 1, 3);
  blocks.set_scores({0, 9, 1, 1, 7, -5, 8, 8, 2, 2});
  EXPECT_EQ(blocks.run(), (Ids{0, 2, 3}));
}

TEST(SelectBlocksTest, TiesGoToTheLowerBlock) {
  ScoredBlocks blocks(9, 1, 2);
  blocks.set_scores({1, 0, 5, 5, -5, 5, 5, 2, 0, 5});
  EXPECT_EQ(blocks.run(), (Ids{1, 2}));
}

TEST(SelectBlocksTest, FirstAndLocalBlocksComeBeforeAllOthers) {
  ScoredBlocks blocks(9, 1, 3);
  blocks.set_scores({-9, -9, 3, 3, 9, 9, 8, 8, -9, -9});
  blocks.args.local_blocks = 1;
  EXPECT_EQ(blocks.run(), (Ids{2, 3, 4}));
  blocks.args.first_blocks = 1;
  EXPECT_EQ(blocks.run(), (Ids{0, 2, 4}));
  blocks.args.local_blocks = 2;
  EXPECT_EQ(blocks.run(), (Ids{0, 3, 4}));
}

TEST(SelectBlocksTest, ATokenSeesTheKeysUpToItsOwn) {
  ScoredBlocks blocks(3, 4, 2);
  blocks.set_scores({1, 1, 0, 0, 3, 9, 8});
  EXPECT_EQ(blocks.run(0), (Ids{0, 1}));  // position 3
  EXPECT_EQ(blocks.run(1), (Ids{0, 2}));  // key 4 alone of block 2
  EXPECT_EQ(blocks.run(3), (Ids{2, 3}));
  blocks.args.mask = Mask::full();
  EXPECT_EQ(blocks.run(0), (Ids{2, 3}));
}

TEST(SelectBlocksTest, RowsOfFewBlocksEndInMinusOne) {
  ScoredBlocks blocks(2, 1, 4);
  blocks.set_scores({1, 2, 3});
  EXPECT_EQ(blocks.run(), (Ids{0, 1, -1, -1}));
}

TEST(SelectBlocksTest, NanCountsAsMinusInfinity) {
  ScoredBlocks blocks(7, 1, 2);
  blocks.set_scores({kNan, kNan, kNan, -7, -kInfinity, -kInfinity, -8, kNan});
  EXPECT_EQ(blocks.run(), (Ids{1, 3}));
  blocks.set_scores({kNan, kNan, kNan, kNan, -kInfinity, -kInfinity, -8, kNan});
  EXPECT_EQ(blocks.run(), (Ids{0, 3}));
}

TEST(SelectBlocksTest, TheJudgeNamesWhatIsWrong) {
  ScoredBlocks blocks(9, 1, 3);
  blocks.set_scores({0, 9, 1, 1, 7, -5, 8, 8, 2, 2});
  blocks.args.local_blocks = 1;
  EXPECT_EQ(blocks.run(), (Ids{0, 3, 4}));
  EXPECT_EQ(blocks.fault({0, 2, 3}), "block 4 is left out, first or local");
  EXPECT_EQ(blocks.fault({0, 2, 4}).find("a chosen block scores at most 7.00000"), 0U);
  EXPECT_EQ(blocks.fault({3, 0, 4}), "slot 1 holds 0, not more than slot 0");
  EXPECT_EQ(blocks.fault({0, 3, 5}), "slot 2 holds 5, of which the token sees no key");
  EXPECT_EQ(blocks.fault({0, 4, -1}), "slot 2 holds -1, of which the token sees no key");
}

}  // namespace
}  // namespace quire::reference
