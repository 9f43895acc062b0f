// SPDX-License-Identifier: Apache-2.0
// Sums of bounded multiples, and the overlaps of strided views that they decide, against enumeration.
#include "ops/bounded_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "ops/memory_span.h"

namespace quire::ops {
namespace {

std::set<std::int64_t> all_sums(const std::vector<BoundedTerm>& terms) {
  std::set<std::int64_t> sums{0};
  for (const BoundedTerm& term : terms) {
    std::set<std::int64_t> more;
    for (const std::int64_t sum : sums) {
      for (std::int64_t x = 0; x <= term.bound; ++x) more.insert(sum + term.coefficient * x);
    }
    sums = std::move(more);
  }
  return sums;
}

TEST(BoundedSumTest, AgreesWithEnumeration) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<BoundedTerm> terms(random() % 5);
    for (BoundedTerm& term : terms) {
      term = {.coefficient = static_cast<std::int64_t>(random() % 40),
              .bound = static_cast<std::int64_t>(random() % 5)};
    }
    const std::set<std::int64_t> sums = all_sums(terms);
    for (std::int64_t target = -2; target <= *sums.rbegin() + 2; ++target) {
      ASSERT_EQ(can_sum_to(terms, target), sums.contains(target)) << "round " << round;
    }
  }
}

TEST(BoundedSumTest, DecidesLargeStridesInAFewSteps) {
  constexpr std::int64_t kPrime = 1000003;
  constexpr std::int64_t kBound = 1 << 30;
  EXPECT_EQ(can_sum_to({{kPrime, kBound}, {kPrime + 30, kBound}}, kPrime * 31 + 1), false);
  EXPECT_EQ(can_sum_to({{kPrime, kBound}, {kPrime + 30, kBound}}, kPrime * (kPrime + 30)), true);
  EXPECT_EQ(can_sum_to({{kPrime * 8, kBound}, {kPrime * 6, kBound}}, kPrime * 2 + 1), false);
  EXPECT_EQ(can_sum_to({{1 << 20, 1 << 20}, {64, 3}, {1, 7}}, (5 << 20) + 64 * 3 + 8), false);
}

TEST(BoundedSumTest, GivesUpRatherThanSearchForLong) {
  const std::vector<BoundedTerm> terms{
      {1000003, 5000}, {1000033, 5000}, {1000037, 5000}, {1000039, 5000}, {1000081, 5000}};
  const std::int64_t middle = 3 * 1000003 * std::int64_t{4001} + 1;
  const std::optional<bool> found = can_sum_to(terms, middle);
  EXPECT_TRUE(!found.has_value() || *found) << "a sum near the middle of a dense set";
}

// The bytes of a view.
std::set<std::uintptr_t> bytes_of(const TensorView& view) {
  std::set<std::uintptr_t> bytes;
  const auto width = static_cast<std::uintptr_t>(bits(view.dtype) / 8);
  std::vector<std::int64_t> index(static_cast<std::size_t>(view.rank), 0);
  for (std::int64_t i = 0; i < view.numel(); ++i) {
    std::int64_t rest = i;
    std::int64_t offset = 0;
    for (int dim = view.rank - 1; dim >= 0; --dim) {
      offset += rest % view.shape[dim] * view.strides[dim];
      rest /= view.shape[dim];
    }
    const auto first =
        reinterpret_cast<std::uintptr_t>(view.data) + static_cast<std::uintptr_t>(offset) * width;
    for (std::uintptr_t byte = 0; byte < width; ++byte) bytes.insert(first + byte);
  }
  return bytes;
}

TensorView random_view(std::mt19937& random, std::byte* memory) {
  constexpr DType kTypes[] = {DType::i8, DType::bf16, DType::f32, DType::i64};
  TensorView view;
  view.dtype = kTypes[random() % 4];
  view.rank = 1 + static_cast<int>(random() % 3);
  view.data = memory + 8 * (random() % 12);
  for (int dim = 0; dim < view.rank; ++dim) {
    view.shape[dim] = static_cast<std::int64_t>(random() % 5);
    view.strides[dim] = static_cast<std::int64_t>(random() % 13);
  }
  return view;
}

TEST(StridedOverlapTest, AgreesWithEnumeration) {
  std::mt19937 random(11);
  std::vector<std::byte> memory(8);  // addresses alone matter
  int overlapping = 0;
  for (int round = 0; round < 20000; ++round) {
    const TensorView a = random_view(random, memory.data());
    const TensorView b = random_view(random, memory.data());
    const std::set<std::uintptr_t> left = bytes_of(a);
    const std::set<std::uintptr_t> right = bytes_of(b);
    const bool shares = std::ranges::any_of(left, [&](auto byte) { return right.contains(byte); });
    ASSERT_EQ(surely_overlaps(a, b), shares) << a.describe() << " " << b.describe();
    ASSERT_EQ(surely_overlaps(b, a), shares) << a.describe() << " " << b.describe();
    const auto width = static_cast<std::size_t>(bits(a.dtype) / 8);
    ASSERT_EQ(surely_overlaps_itself(a), left.size() < static_cast<std::size_t>(a.numel()) * width)
        << a.describe();
    overlapping += shares ? 1 : 0;
  }
  EXPECT_GT(overlapping, 2000);
  EXPECT_LT(overlapping, 18000);
}

// Slices of one buffer of rows, as engines make them.
TEST(StridedOverlapTest, TellsSlicesOfOneBufferApart) {
  constexpr std::int64_t kTokens = 1 << 20;
  auto* buffer = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);
  const auto slice = [&](std::int64_t first_column, std::int64_t columns) {
    TensorView view =
        TensorView::contiguous(buffer + first_column * 4, DType::i32, {kTokens, columns});
    view.strides[0] = 100;
    return view;
  };
  EXPECT_FALSE(surely_overlaps(slice(0, 60), slice(60, 40)));
  EXPECT_TRUE(surely_overlaps(slice(0, 60), slice(59, 40)));
  EXPECT_TRUE(surely_overlaps(slice(10, 50), slice(0, 11)));
  EXPECT_FALSE(surely_overlaps(slice(10, 50), slice(0, 10)));
  EXPECT_FALSE(surely_overlaps(slice(90, 10), slice(0, 90)));
  EXPECT_TRUE(surely_overlaps(slice(90, 11), slice(0, 90))) << "the next row's first column";
}

}  // namespace
}  // namespace quire::ops
