// SPDX-License-Identifier: Apache-2.0
#include "reference/ragged.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/cache_builder.h"

namespace quire::reference {
namespace {

struct RaggedCase {
  std::string name;
  std::vector<std::uint32_t> cache_lengths;
  std::vector<std::uint32_t> new_tokens;
  std::vector<Token> expected;
};

class RaggedTokens : public testing::TestWithParam<RaggedCase> {};

TEST_P(RaggedTokens, EveryTokenFindsItsSequenceAndPosition) {
  const RaggedCase& c = GetParam();
  const test::TestCache cache({.cache_lengths = c.cache_lengths, .new_tokens = c.new_tokens});
  const std::vector<Token> tokens = tokens_of(cache.row_offsets(), cache.view());
  ASSERT_EQ(tokens.size(), c.expected.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(tokens[i].index, c.expected[i].index) << i;
    EXPECT_EQ(tokens[i].sequence, c.expected[i].sequence) << i;
    EXPECT_EQ(tokens[i].local, c.expected[i].local) << i;
    EXPECT_EQ(tokens[i].position, c.expected[i].position) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Batches, RaggedTokens,
    testing::Values(
        RaggedCase{"one_token", {0}, {1}, {{0, 0, 0, 0}}},
        RaggedCase{"one_token_after_a_prefix", {9}, {1}, {{0, 0, 0, 9}}},
        RaggedCase{"no_token", {9}, {0}, {}}, RaggedCase{"no_sequence", {}, {}, {}},
        RaggedCase{"two_sequences",
                   {3, 0},
                   {2, 3},
                   {{0, 0, 0, 3}, {1, 0, 1, 4}, {2, 1, 0, 0}, {3, 1, 1, 1}, {4, 1, 2, 2}}},
        RaggedCase{"empty_first", {5, 7}, {0, 1}, {{0, 1, 0, 7}}},
        RaggedCase{"empty_middle", {5, 6, 7}, {1, 0, 1}, {{0, 0, 0, 5}, {1, 2, 0, 7}}},
        RaggedCase{"empty_last", {5, 6}, {2, 0}, {{0, 0, 0, 5}, {1, 0, 1, 6}}},
        RaggedCase{"several_empty_in_a_row", {1, 2, 3, 4}, {0, 0, 1, 0}, {{0, 2, 0, 3}}}),
    [](const auto& test) { return test.param.name; });

TEST(RaggedKeys, CountsCachedAndNewTokens) {
  const test::TestCache cache({.cache_lengths = {4, 0, 7}, .new_tokens = {2, 5, 0}});
  EXPECT_EQ(num_keys(cache.row_offsets(), cache.view(), 0), 6);
  EXPECT_EQ(num_keys(cache.row_offsets(), cache.view(), 1), 5);
  EXPECT_EQ(num_keys(cache.row_offsets(), cache.view(), 2), 7);
}

TEST(RaggedKeys, CountsNewTokensThroughStridedOffsets) {
  std::vector<std::uint32_t> every_other{0, 99, 3, 99, 3, 99, 8};
  TensorView offsets = TensorView::contiguous(every_other.data(), DType::u32, {4});
  offsets.strides[0] = 2;
  EXPECT_EQ(num_new_tokens(offsets, 0), 3);
  EXPECT_EQ(num_new_tokens(offsets, 1), 0);
  EXPECT_EQ(num_new_tokens(offsets, 2), 5);
}

}  // namespace
}  // namespace quire::reference
