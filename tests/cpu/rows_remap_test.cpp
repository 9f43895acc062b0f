// SPDX-License-Identifier: Apache-2.0
// remap_sparse_indices on every target against the reference.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "cpu/row_target.h"
#include "quire/ops/remap_sparse_indices.h"
#include "reference/remap_sparse_indices.h"
#include "support/cache_builder.h"

namespace quire::cpu {
namespace {

using test::HostTensor;
using test::TestCache;

struct Layout {
  std::int64_t top_k;
  std::int64_t padding;  // between tokens
  bool transposed;
  bool in_place;
};

class RowsRemap : public RowTarget {
 protected:
  void expect_equal(std::int64_t page_size, const Layout& layout) {
    TestCache cache({.cache_lengths = {40, 0, 200, 3},
                     .new_tokens = {3, 0, 90, 1},
                     .page_size = page_size,
                     .num_kv_heads = 1,
                     .is_mla = true});
    cache.unassign(2, 0);
    if (page_size < 100) cache.unassign(2, 1, static_cast<std::uint32_t>(cache.view().num_pages()));
    const HostTensor indices = positions(cache.num_tokens(), layout);
    HostTensor wanted = indices;
    run(cache, layout, indices, wanted,
        [](const RemapSparseIndicesArgs& args) { reference::remap_sparse_indices(args); });
    for (const int threads : thread_counts_) {
      HostTensor out = indices;
      run(cache, layout, indices, out, [&](const RemapSparseIndicesArgs& args) {
        ASSERT_EQ(supports(args, context(threads)).kernel, kernel("remap_sparse_indices"));
        remap_sparse_indices(args, context(threads));
      });
      ASSERT_TRUE(out.bytes() == wanted.bytes()) << "pages of " << page_size << ", top_k "
                                                 << layout.top_k << ", " << threads << " threads";
    }
  }

 private:
  // Inside, beside and far past the pages; negative of all kinds.
  static HostTensor positions(std::int64_t tokens, const Layout& layout) {
    HostTensor tensor(DType::i32, {tokens, layout.top_k + layout.padding});
    const TensorView view = tensor.view();
    std::mt19937 random(31);
    constexpr std::int32_t kSpecial[] = {-1, std::numeric_limits<std::int32_t>::min(),
                                         std::numeric_limits<std::int32_t>::max(), -7, 0};
    for (std::int64_t i = 0; i < view.numel(); ++i) {
      const auto position = static_cast<std::int32_t>(random() % 400u);
      view.as<std::int32_t>()[i] = random() % 5u == 0 ? kSpecial[random() % 5u] : position;
    }
    return tensor;
  }

  template <typename Op>
  static void run(const TestCache& cache, const Layout& layout, const HostTensor& indices,
                  HostTensor& out, Op op) {
    const auto shaped = [&](TensorView view) {
      view.shape[1] = layout.top_k;
      if (layout.transposed) {  // columns of memory are tokens
        view.strides = {1, view.shape[0]};
      }
      return view;
    };
    op(RemapSparseIndicesArgs{.indices = shaped(layout.in_place ? out.view() : indices.view()),
                              .row_offsets = cache.row_offsets(),
                              .cache = cache.view(),
                              .out = shaped(out.view())});
  }
};

TEST_P(RowsRemap, EveryPageSizeAndLayout) {
  for (const std::int64_t page_size : {1, 2, 3, 7, 16, 48, 64, 128, 1000}) {
    for (const std::int64_t top_k : {1, 5, 16, 37, 64, 2048}) {
      expect_equal(page_size, {top_k, 3, false, false});
      expect_equal(page_size, {top_k, 0, false, true});
      expect_equal(page_size, {top_k, 0, true, false});
    }
  }
}

TEST_P(RowsRemap, AnyNumberOfThreads) {
  thread_counts_ = kThreadCounts;
  expect_equal(64, {300, 0, false, false});
}

INSTANTIATE_TEST_SUITE_P(Targets, RowsRemap, kEveryTarget, target_name);

}  // namespace
}  // namespace quire::cpu
