// SPDX-License-Identifier: Apache-2.0
// copy_pages on every target against the reference, byte for byte, over pools of several layouts.
#include <gtest/gtest.h>

#include "cpu/row_target.h"
#include "quire/ops/copy_pages.h"
#include "reference/copy_pages.h"
#include "support/cache_builder.h"
#include "support/host_tensor.h"

namespace quire::cpu {
namespace {

using test::CacheOptions;
using test::HostTensor;
using test::TestCache;

class CopyPagesOnCpu : public RowTarget {
 protected:
  void expect_right(const CacheOptions& options) {
    const HostTensor pairs =
        HostTensor::of(DType::u32, {4, 2}, {0, 3, 2, 5, 4294967295.0, 1, 0, 4});
    TestCache expected(options);
    expected.fill_cached(1, 3);
    reference::copy_pages({.cache = expected.view(), .pairs = pairs.view()});
    for (const int threads : thread_counts_) {
      TestCache run(options);
      run.fill_cached(1, 3);
      const CopyPagesArgs args{.cache = run.view(), .pairs = pairs.view()};
      ASSERT_EQ(supports(args, context(threads)).kernel, kernel("copy_pages"));
      const auto before = run.block_bytes();
      copy_pages(args, context(threads));
      EXPECT_NE(run.block_bytes(), before);
      EXPECT_EQ(run.block_bytes(), expected.block_bytes());
      EXPECT_EQ(run.scale_bytes(), expected.scale_bytes());
    }
  }
};

TEST_P(CopyPagesOnCpu, EveryLayout) {
  thread_counts_ = kThreadCounts;
  const std::vector<std::uint32_t> lengths{9, 8};
  expect_right({.cache_lengths = lengths, .new_tokens = {0, 0}});
  expect_right({.cache_lengths = lengths, .new_tokens = {0, 0}, .heads_first = true});
  expect_right({.cache_lengths = lengths,
                .new_tokens = {0, 0},
                .row_format = RowFormat::scaled(DType::fp8_e4m3, 24, 8)});
  expect_right({.cache_lengths = lengths,
                .new_tokens = {0, 0},
                .row_format = RowFormat::scaled(DType::i8, 7, 7),
                .static_scale = 0.5});
  // A page of more than one share of a thread.
  expect_right({.cache_lengths = lengths,
                .new_tokens = {0, 0},
                .row_format = RowFormat::uniform(DType::f32, 16384),
                .num_layers = 3});
}

INSTANTIATE_TEST_SUITE_P(Targets, CopyPagesOnCpu, kEveryTarget, target_name);

}  // namespace
}  // namespace quire::cpu
