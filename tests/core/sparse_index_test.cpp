// SPDX-License-Identifier: Apache-2.0
#include "quire/sparse_index.h"

#include "cache_storage.h"
#include "gtest/gtest.h"
#include "quire/paged_kv_operand.h"

namespace quire {
namespace {

using testing::CacheStorage;

TEST(SparseIndex, EncodingIsArithmeticNotBitFields) {
  EXPECT_EQ(encode_sparse_index({.page = 3, .slot = 47}, 48), 3 * 48 + 47);
  EXPECT_EQ(encode_sparse_index({.page = 0, .slot = 0}, 1), 0);
}

TEST(SparseIndex, NoPageEncodesAsMinusOneWhateverTheSlot) {
  EXPECT_EQ(encode_sparse_index({}, 16), -1);
  EXPECT_EQ(encode_sparse_index({.page = -1, .slot = 7}, 16), -1);
}

TEST(SparseIndex, LastPositionBelowTwoToTheThirtyOneFits) {
  EXPECT_EQ(encode_sparse_index({.page = (1 << 24) - 1, .slot = 126}, 127),
            ((1 << 24) - 1) * 127 + 126);
}

TEST(SparseIndex, RowsOfSeveralLayersAreNotTheEncodedIndex) {
  CacheStorage storage({.pages = 4, .kv = 1, .layers = 3, .page_size = 16, .row = 4}, 1, 2);
  storage.entry(0, 0) = 2;
  storage.entry(0, 1) = 1;
  const KvLayerView view = storage.cache.key(2);
  EXPECT_EQ(PagedKvOperand(view).rows_per_page_stride(), 48);
  EXPECT_EQ(encode_sparse_index(view.pages().find(0, 5), 16), 2 * 16 + 5);
  EXPECT_EQ(encode_sparse_index(view.pages().find(0, 17), 16), 16 + 1);
}

TEST(SparseIndex, OneLayerWithoutValuesIsTheRow) {
  CacheStorage storage({.pages = 4, .kv = 1, .page_size = 16, .row = 4}, 1, 1);
  EXPECT_EQ(PagedKvOperand(storage.cache.key(0)).rows_per_page_stride(), 16);
}

}  // namespace
}  // namespace quire
