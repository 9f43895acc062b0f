// SPDX-License-Identifier: Apache-2.0
#include "core/page_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace quire {
namespace {

// [num_pages, kv, layers, page_size, heads, row] with the dimensions in this order in memory.
TensorView pool(std::array<std::int64_t, 6> shape, std::array<int, 6> order, DType dtype) {
  TensorView view = TensorView::contiguous(nullptr, dtype, {1, 1, 1, 1, 1, 1});
  std::int64_t stride = 1;
  for (std::size_t i = 6; i-- > 0;) {
    const auto dim = static_cast<std::size_t>(order[i]);
    view.shape[dim] = shape[dim];
    view.strides[dim] = stride;
    stride *= shape[dim];
  }
  return view;
}

struct Layout {
  std::string name;
  TensorView pages;
  std::int64_t run_bytes;
  std::int64_t num_runs;
};

// Every byte of page 0, from the elements one by one and from the runs.
void expect_same_bytes(const TensorView& pages, const PageRuns& runs) {
  std::vector<std::int64_t> expected;
  for (std::int64_t kv = 0; kv < pages.shape[1]; ++kv) {
    for (std::int64_t layer = 0; layer < pages.shape[2]; ++layer) {
      for (std::int64_t token = 0; token < pages.shape[3]; ++token) {
        for (std::int64_t head = 0; head < pages.shape[4]; ++head) {
          for (std::int64_t column = 0; column < pages.shape[5]; ++column) {
            const std::int64_t at =
                bytes_for(pages.dtype, pages.offset({0, kv, layer, token, head, column}));
            for (std::int64_t b = 0; b < bytes_for(pages.dtype, 1); ++b) expected.push_back(at + b);
          }
        }
      }
    }
  }
  std::vector<std::int64_t> actual;
  for (std::int64_t run = 0; run < runs.num_runs(); ++run) {
    for (std::int64_t b = 0; b < runs.run_bytes; ++b) actual.push_back(runs.offset_bytes(run) + b);
  }
  std::sort(expected.begin(), expected.end());
  expected.erase(std::unique(expected.begin(), expected.end()), expected.end());  // shared numbers
  std::sort(actual.begin(), actual.end());
  EXPECT_EQ(actual, expected);
}

class PageRunsTest : public testing::TestWithParam<Layout> {};

TEST_P(PageRunsTest, AreAsFewAndAsLongAsTheLayoutAllows) {
  const PageRuns runs = page_runs(GetParam().pages);
  EXPECT_EQ(runs.run_bytes, GetParam().run_bytes);
  EXPECT_EQ(runs.num_runs(), GetParam().num_runs);
  EXPECT_EQ(runs.page_stride_bytes, bytes_for(GetParam().pages.dtype, GetParam().pages.strides[0]));
  expect_same_bytes(GetParam().pages, runs);
}

std::vector<Layout> layouts() {
  const std::array<std::int64_t, 6> shape{3, 2, 4, 5, 2, 7};
  const std::int64_t page = 2 * 4 * 5 * 2 * 7;
  TensorView with_gaps = pool(shape, {0, 1, 2, 3, 4, 5}, DType::bf16);
  with_gaps.strides = {1000, 480, 120, 20, 10, 1};  // a gap after every row, K/V and layer
  TensorView shared = pool({3, 2, 4, 5, 2, 1}, {0, 1, 2, 3, 4, 5}, DType::f32);
  shared.strides = {16, 8, 1, 0, 0, 0};
  return {{"page_order", pool(shape, {0, 1, 2, 3, 4, 5}, DType::bf16), 2 * page, 1},
          {"heads_first", pool(shape, {0, 1, 2, 4, 3, 5}, DType::bf16), 2 * page, 1},
          {"layers_outermost", pool(shape, {2, 0, 1, 3, 4, 5}, DType::u8), page / 4, 4},
          {"kv_and_layers_outermost", pool(shape, {1, 2, 0, 3, 4, 5}, DType::u8), page / 8, 8},
          {"pages_innermost", pool(shape, {1, 2, 3, 4, 5, 0}, DType::u8), 1, page},
          {"gaps", with_gaps, 14, 80},
          {"one_of_everything", pool({3, 1, 1, 1, 1, 1}, {0, 1, 2, 3, 4, 5}, DType::f32), 4, 1},
          {"shared_by_tokens", shared, 16, 2}};
}

INSTANTIATE_TEST_SUITE_P(Layouts, PageRunsTest, testing::ValuesIn(layouts()),
                         [](const auto& test) { return test.param.name; });

TEST(PageRuns, ATensorWithoutElementsHasNoBytes) {
  EXPECT_EQ(page_runs(pool({3, 2, 0, 5, 2, 7}, {0, 1, 2, 3, 4, 5}, DType::bf16)).run_bytes, 0);
}

}  // namespace
}  // namespace quire
