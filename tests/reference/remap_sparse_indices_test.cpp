// SPDX-License-Identifier: Apache-2.0
#include "reference/remap_sparse_indices.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/host_tensor.h"

namespace quire::reference {
namespace {

using test::HostTensor;

// Two sequences of two and one tokens, pages of 128, five pages; entries 5 and 0xffffffff are "no
// page".
class RemapSparseIndices : public testing::Test {
 protected:
  PagedKVCache cache() const {
    return {.blocks = TensorView::contiguous(nullptr, DType::bf16, {5, 1, 2, 128, 1, 576}),
            .cache_lengths = lengths_.view(),
            .page_table = table_.view()};
  }

  HostTensor remap(const HostTensor& indices) const {
    HostTensor out(DType::i32, {3, indices.view().shape[1]});
    reference::remap_sparse_indices({.indices = indices.view(),
                                     .row_offsets = offsets_.view(),
                                     .cache = cache(),
                                     .out = out.view()});
    return out;
  }

  HostTensor table_ = HostTensor::of(DType::u32, {2, 3}, {3, 1, 5, 4, 0xffffffffu, 0});
  HostTensor lengths_ = HostTensor::of(DType::u32, {2}, {200, 300});
  HostTensor offsets_ = HostTensor::of(DType::u32, {3}, {0, 2, 3});
};

struct RemapCase {
  std::string name;
  std::int64_t token;
  std::int32_t position;
  std::int32_t expected;
};

class RemapPositions : public RemapSparseIndices, public testing::WithParamInterface<RemapCase> {};

TEST_P(RemapPositions, PositionBecomesPhysicalRow) {
  const RemapCase& c = GetParam();
  const HostTensor indices = HostTensor::filled(DType::i32, {3, 1}, 0);
  indices.view().store({c.token, 0}, c.position);
  EXPECT_EQ(remap(indices).at({c.token, 0}), c.expected);
}

INSTANTIATE_TEST_SUITE_P(Positions, RemapPositions,
                         testing::Values(RemapCase{"first", 0, 0, 3 * 128},
                                         RemapCase{"end_of_page", 0, 127, 3 * 128 + 127},
                                         RemapCase{"second_page", 0, 129, 128 + 1},
                                         RemapCase{"second_token_of_the_sequence", 1, 130, 128 + 2},
                                         RemapCase{"other_sequence", 2, 5, 4 * 128 + 5},
                                         RemapCase{"page_zero", 2, 300, 44},
                                         RemapCase{"sentinel_num_pages", 0, 256, -1},
                                         RemapCase{"sentinel_all_ones", 2, 200, -1},
                                         RemapCase{"past_the_table", 0, 3 * 128, -1},
                                         RemapCase{"far_past_the_table", 1, 2147483647, -1},
                                         RemapCase{"absent", 0, -1, -1},
                                         RemapCase{"negative_passes_through", 2, -7, -7}),
                         [](const auto& test) { return test.param.name; });

TEST_F(RemapSparseIndices, InPlaceAndStrided) {
  const HostTensor indices = HostTensor::of(DType::i32, {2, 3}, {0, 1, 2, 128, -1, 260});
  TensorView by_token = indices.view();  // [tokens = 3, top_k = 2]
  by_token.shape = {3, 2};
  by_token.strides = {1, 3};
  reference::remap_sparse_indices(
      {.indices = by_token, .row_offsets = offsets_.view(), .cache = cache(), .out = by_token});
  EXPECT_EQ(indices.values(), (std::vector<double>{384, 385, 514, 128, -1, 4}));
}

TEST_F(RemapSparseIndices, NothingToRemap) {
  const HostTensor indices(DType::i32, {3, 0});
  EXPECT_EQ(remap(indices).values(), std::vector<double>{});
}

}  // namespace
}  // namespace quire::reference
