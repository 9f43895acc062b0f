// SPDX-License-Identifier: Apache-2.0
#include "cpu/runtime/scratch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>

namespace quire::cpu {
namespace {

constexpr std::int64_t kBytes = 1000;

// The next call's view of what this thread left in its scratch.
std::span<std::byte> scratch_after_zeros() {
  std::memset(thread_scratch(kBytes), 0, kBytes);
  return {thread_scratch(kBytes), kBytes};
}

TEST(Scratch, IsNanWhereItIsPoisonedAndLeftAloneElsewhere) {
  const bool was_poisoned = is_scratch_poisoned();
  poison_scratch(true);
  EXPECT_EQ(std::ranges::count(scratch_after_zeros(), std::byte{0xff}), kBytes);
  poison_scratch(false);
  EXPECT_EQ(std::ranges::count(scratch_after_zeros(), std::byte{0}), kBytes);
  poison_scratch(was_poisoned);
}

}  // namespace
}  // namespace quire::cpu
