// SPDX-License-Identifier: Apache-2.0
#include "reference/row_offsets.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/cache_builder.h"
#include "support/host_tensor.h"

namespace quire::reference {
namespace {

struct OffsetsCase {
  std::string name;
  std::vector<std::uint32_t> cache_lengths;
  std::vector<std::uint32_t> new_tokens;
  std::vector<double> expected;
};

class RowOffsets : public testing::TestWithParam<OffsetsCase> {};

TEST_P(RowOffsets, SumsCachedAndNewTokens) {
  const OffsetsCase& c = GetParam();
  const test::TestCache cache({.cache_lengths = c.cache_lengths, .new_tokens = c.new_tokens});
  const auto batch = static_cast<std::int64_t>(c.cache_lengths.size());
  const test::HostTensor out(DType::u32, {batch + 1});
  reference::row_offsets({.row_offsets = cache.row_offsets(),
                          .cache_lengths = cache.view().cache_lengths,
                          .out = out.view()});
  EXPECT_EQ(out.values(), c.expected);
}

INSTANTIATE_TEST_SUITE_P(Batches, RowOffsets,
                         testing::Values(OffsetsCase{"one", {5}, {3}, {0, 8}},
                                         OffsetsCase{"three", {5, 0, 2}, {3, 4, 1}, {0, 8, 12, 15}},
                                         OffsetsCase{
                                             "empty_sequences", {0, 6, 0}, {0, 0, 2}, {0, 0, 6, 8}},
                                         OffsetsCase{"no_sequence", {}, {}, {0}}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace quire::reference
