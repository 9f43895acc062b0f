// SPDX-License-Identifier: Apache-2.0
// The manager's own hash: whatever a block depends on changes both halves, and small differences spread over the slots.
#include "pages/block_hash.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace quire::pages {
namespace {

using Tokens = std::vector<std::int32_t>;

// Blocks that differ in one thing each.
std::vector<BlockHash> neighbours(std::size_t size) {
  const BlockHash parent{.low = 3, .high = 5};
  const Tokens tokens(size, 7);
  std::vector<BlockHash> hashes{hash_block(parent, tokens, 0),
                                hash_block(parent, tokens, hash_text("a")),
                                hash_block(parent, tokens, hash_text("b")),
                                hash_block({.low = 2, .high = 5}, tokens, 0),
                                hash_block({.low = 3, .high = 4}, tokens, 0),
                                hash_block({.low = 5, .high = 3}, tokens, 0),
                                hash_block(parent, Tokens(size + 1, 7), 0)};
  for (std::size_t i = 0; i < size; ++i) {
    for (const std::int32_t token : {0, 6, 8, -1, 1 << 30}) {
      Tokens other = tokens;
      other[i] = token;
      hashes.push_back(hash_block(parent, other, 0));
    }
  }
  return hashes;
}

TEST(BlockHash, DependsOnEveryTokenKeyParentAndSize) {
  for (const std::size_t size : {1, 4, 15, 16, 17, 32, 40, 64}) {
    std::set<std::uint64_t> low;
    std::set<std::uint64_t> high;
    for (const BlockHash& hash : neighbours(size)) {
      EXPECT_TRUE(low.insert(hash.low).second) << size;
      EXPECT_TRUE(high.insert(hash.high).second) << size;
    }
  }
  // Zeros that are there are not zeros that fill up.
  EXPECT_NE(hash_block({}, Tokens{}, 0), hash_block({}, Tokens{0}, 0));
  EXPECT_NE(hash_block({}, Tokens(16, 0), 0), hash_block({}, Tokens(32, 0), 0));
  EXPECT_NE(hash_block({}, Tokens{1, 2}, 0), hash_block({}, Tokens{2, 1}, 0));
}

// 2¹⁶ slots and four times as many blocks of small tokens: the counts vary as those of random numbers do, whose sum of
// squares over the mean is 1 ± 0.0055 a slot.
TEST(BlockHash, SpreadsOverSlots) {
  constexpr std::size_t kSlots = 1 << 16;
  std::vector<int> low(kSlots);
  std::vector<int> high(kSlots);
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(4 * kSlots); ++i) {
    Tokens tokens(16, 0);
    tokens[static_cast<std::size_t>(i % 16)] = i / 16;
    tokens[static_cast<std::size_t>((i + 5) % 16)] = i % 7;
    const BlockHash hash = hash_block({}, tokens, 0);
    ++low[hash.low % kSlots];
    ++high[hash.high % kSlots];
  }
  for (const std::vector<int>& counts : {low, high}) {
    double sum = 0.0;
    for (const int count : counts) sum += (count - 4.0) * (count - 4.0) / 4.0;
    EXPECT_NEAR(sum / kSlots, 1.0, 0.05);
  }
}

}  // namespace
}  // namespace quire::pages
