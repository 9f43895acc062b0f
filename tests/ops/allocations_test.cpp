// SPDX-License-Identifier: Apache-2.0
// Engines call ops thousands of times a second: checks that pass allocate the list of tensors and nothing else. Texts
// and searches belong to errors.
#include <gtest/gtest.h>

#include "ops/allocation_count.h"
#include "ops/sample_attention.h"
#include "ops/sample_cache_ops.h"
#include "ops/sample_latent.h"

namespace quire::test {
namespace {

template <typename S> int allocations_of_validate() {
  const S sample;
  const int before = num_allocations();
  static_cast<void>(validate(sample.args));
  return num_allocations() - before;
}

TEST(AllocationsTest, ValidArgumentsTakeOneList) {
  EXPECT_EQ(allocations_of_validate<FlashAttentionSample>(), 1);
  EXPECT_EQ(allocations_of_validate<FlashAttentionInt8Sample>(), 1);
  EXPECT_EQ(allocations_of_validate<RopeSample>(), 1);
  EXPECT_EQ(allocations_of_validate<StoreSample>(), 1);
  EXPECT_EQ(allocations_of_validate<StoreSlotsSample>(), 1);
  EXPECT_EQ(allocations_of_validate<MlaDecodeSample>(), 1);
  EXPECT_EQ(allocations_of_validate<SparseMlaSample>(), 1);
}

}  // namespace
}  // namespace quire::test
