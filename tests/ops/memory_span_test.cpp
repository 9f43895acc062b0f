// SPDX-License-Identifier: Apache-2.0
#include "ops/memory_span.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/finite.h"

namespace quire::ops {
namespace {

TensorView view_at(float* data, std::initializer_list<std::int64_t> shape) {
  return TensorView::contiguous(data, DType::f32, shape);
}

TEST(MemorySpanTest, CountsFromTheFirstToTheLastElement) {
  TensorView view = TensorView::contiguous(nullptr, DType::f32, {3, 4});
  EXPECT_EQ(span_bytes(view), 48);
  view.strides = {10, 2};
  EXPECT_EQ(span_bytes(view), (2 * 10 + 3 * 2 + 1) * 4);
  view.strides = {0, 0};
  EXPECT_EQ(span_bytes(view), 4);
  view.shape[1] = 0;
  EXPECT_EQ(span_bytes(view), 0);
  EXPECT_EQ(span_bytes(TensorView::contiguous(nullptr, DType::u4, {3})), 2);
}

TEST(MemorySpanTest, RefusesWhatOverflows) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  TensorView view = TensorView::contiguous(nullptr, DType::f32, {4, 4, 4});
  view.shape = {kHuge, kHuge, 4};
  EXPECT_EQ(span_bytes(view), std::nullopt);
  view.shape = {kHuge, kHuge, 0};  // empty, but the products of its sizes would overflow
  EXPECT_EQ(span_bytes(view), std::nullopt);
  view.shape = {4, 4, 4};
  view.strides = {std::int64_t{1} << 60, 4, 1};
  EXPECT_EQ(span_bytes(view), std::nullopt);
  view.strides = {std::numeric_limits<std::int64_t>::max(), 4, 1};
  EXPECT_EQ(span_bytes(view), std::nullopt);
}

TEST(MemorySpanTest, SaturatesProducts) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(saturating_product(3, 4), 12);
  EXPECT_EQ(saturating_product(kMax, 2), kMax);
  EXPECT_EQ(saturating_product(kMax, 0), 0);
  EXPECT_EQ(ceil_div(kMax, 2), kMax / 2 + 1);
}

TEST(MemorySpanTest, FindsSharedElements) {
  std::vector<float> memory(40);
  const TensorView left = view_at(memory.data(), {10});
  EXPECT_TRUE(surely_overlaps(left, left));
  EXPECT_TRUE(surely_overlaps(left, view_at(memory.data() + 9, {10})));
  EXPECT_TRUE(surely_overlaps(view_at(memory.data() + 9, {10}), left));
  EXPECT_FALSE(surely_overlaps(left, view_at(memory.data() + 10, {10})));
  EXPECT_FALSE(surely_overlaps(left, view_at(memory.data(), {0})));
  EXPECT_TRUE(surely_overlaps(view_at(memory.data(), {40}), view_at(memory.data() + 5, {2})));
}

TEST(MemorySpanTest, InterleavedViewsOfOneBufferDoNotCount) {
  std::vector<float> memory(40);  // [4, 10]: q in columns 0-5, out in columns 6-9
  TensorView q = view_at(memory.data(), {4, 6});
  TensorView out = view_at(memory.data() + 6, {4, 4});
  q.strides[0] = out.strides[0] = 10;
  EXPECT_FALSE(surely_overlaps(q, out));
  EXPECT_FALSE(surely_overlaps(out, q));
  EXPECT_TRUE(surely_overlaps(q, view_at(memory.data(), {40})));
}

TEST(MemorySpanTest, FindsElementsThatAreOne) {
  const auto overlaps = [](std::initializer_list<std::int64_t> shape,
                           std::initializer_list<std::int64_t> strides) {
    TensorView view = view_at(nullptr, shape);
    std::ranges::copy(strides, view.strides.begin());
    return surely_overlaps_itself(view);
  };
  EXPECT_FALSE(overlaps({3, 4}, {4, 1}));
  EXPECT_FALSE(overlaps({3, 4}, {1, 3})) << "transposed";
  EXPECT_FALSE(overlaps({3, 1, 4}, {9, 0, 1})) << "a size of 1 has no stride";
  EXPECT_FALSE(overlaps({3, 2}, {2, 3})) << "0 3 2 5 4 7";
  EXPECT_FALSE(overlaps({0, 3, 4}, {0, 1, 1})) << "empty";
  EXPECT_TRUE(overlaps({3, 4}, {3, 1}));
  EXPECT_TRUE(overlaps({3, 4}, {0, 1}));
  EXPECT_TRUE(overlaps({2, 3, 4}, {1000, 2, 1})) << "far apart, but each within itself";
}

// Every view of three small sizes and strides, against the places of its elements.
TEST(MemorySpanTest, ElementsThatAreOneAreFoundInEverySmallView) {
  TensorView view = view_at(nullptr, {1, 1, 1});
  for (int code = 0; code < 4 * 4 * 4 * 9 * 9 * 9; ++code) {
    int rest = code;
    for (int dim = 0; dim < 3; ++dim, rest /= 4) view.shape[dim] = rest % 4;
    for (int dim = 0; dim < 3; ++dim, rest /= 9) view.strides[dim] = rest % 9;
    std::vector<bool> taken(3 * 3 * 8 + 1);
    bool overlaps = false;
    for (std::int64_t i = 0; i < view.numel(); ++i) {
      const std::int64_t inner = view.shape[1] * view.shape[2];
      const auto place = static_cast<std::size_t>(
          view.offset({i / inner, i % inner / view.shape[2], i % view.shape[2]}));
      overlaps = overlaps || taken[place];
      taken[place] = true;
    }
    ASSERT_EQ(surely_overlaps_itself(view), overlaps)
        << view.describe() << " strides " << view.strides[0] << " " << view.strides[1] << " "
        << view.strides[2];
  }
}

TEST(MemorySpanTest, TheSameViewIsTheSameInEveryRespect) {
  std::vector<float> memory(16);
  const TensorView view = view_at(memory.data(), {4, 4});
  EXPECT_TRUE(is_same_view(view, view));
  TensorView other = view;
  other.strides = {1, 4};
  EXPECT_FALSE(is_same_view(view, other));
  other = view;
  other.shape[0] = 3;
  EXPECT_FALSE(is_same_view(view, other));
  other = view;
  other.dtype = DType::i32;
  EXPECT_FALSE(is_same_view(view, other));
}

TEST(FiniteTest, NamesTheFirstElementThatIsNot) {
  std::vector<float> memory(600, 1.0f);
  TensorView view = view_at(memory.data(), {2, 300});
  EXPECT_FALSE(find_not_finite(view).has_value());
  memory[300 + 277] = -std::numeric_limits<float>::infinity();
  memory[300 + 278] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(find_not_finite(view).has_value());
  EXPECT_EQ(find_not_finite(view)->index, "[1, 277]");
  EXPECT_EQ(find_not_finite(view)->value, -std::numeric_limits<double>::infinity());
  view.strides = {1, 2};  // every other element, the second row one further
  EXPECT_EQ(find_not_finite(view)->index, "[0, 289]");
}

TEST(FiniteTest, KnowsTheHalfTypes) {
  std::uint16_t word = 0x7bff;  // the largest f16
  const TensorView f16 = TensorView::contiguous(&word, DType::f16, {1});
  const TensorView bf16 = TensorView::contiguous(&word, DType::bf16, {1});
  EXPECT_FALSE(find_not_finite(f16).has_value());
  EXPECT_FALSE(find_not_finite(bf16).has_value());
  word = 0x7c00;  // infinity in f16, a number in bf16
  EXPECT_TRUE(find_not_finite(f16).has_value());
  EXPECT_FALSE(find_not_finite(bf16).has_value());
  word = 0xff81;  // NaN in both
  EXPECT_TRUE(std::isnan(find_not_finite(f16)->value));
  EXPECT_TRUE(std::isnan(find_not_finite(bf16)->value));
}

}  // namespace
}  // namespace quire::ops
