// SPDX-License-Identifier: Apache-2.0
#include "quire/sparse_index.h"

#include <limits>

#include "cache_storage.h"
#include "gtest/gtest.h"
#include "quire/paged_kv_operand.h"

namespace quire {
namespace {

using testing::CacheStorage;

constexpr KvOperandConfig kWords{.dtype = DType::u32, .page_size = 16, .head_dim = 4};

TEST(SparseIndex, DecodeInvertsEncode) {
  for (const int page_size : {1, 16, 48, 128}) {
    for (std::int64_t page = 0; page < 5; ++page) {
      for (int offset = 0; offset < page_size; ++offset) {
        const SparsePosition position{page, offset};
        EXPECT_EQ(decode_sparse_index(encode_sparse_index(position, 5, page_size), page_size),
                  position);
      }
    }
  }
}

TEST(SparseIndex, EncodingIsArithmeticNotBitFields) {
  EXPECT_EQ(encode_sparse_index({3, 47}, 10, 48), 3 * 48 + 47);
}

TEST(SparseIndex, UnassignedPageEncodesAsMinusOne) {
  EXPECT_EQ(encode_sparse_index({5, 0}, 5, 16), -1);
  EXPECT_EQ(encode_sparse_index({0xFFFFFFFF, 3}, 5, 16), -1);
  EXPECT_EQ(encode_sparse_index({-1, 0}, 5, 16), -1);
}

TEST(SparseIndex, LastPositionBelowTwoToTheThirtyOneFits) {
  EXPECT_EQ(encode_sparse_index({(1 << 24) - 1, 126}, 1 << 24, 127), ((1 << 24) - 1) * 127 + 126);
}

TEST(SparseIndex, NegativeDecodesToNoPage) {
  EXPECT_EQ(decode_sparse_index(-1, 16), (SparsePosition{-1, 0}));
  EXPECT_EQ(decode_sparse_index(-2, 16), (SparsePosition{-1, 0}));
}

TEST(SparseIndex, MinusOneBypassesRowConversion) {
  CacheStorage storage({.pages = 4, .layers = 3, .page_size = 16, .row = 4}, 1, 1);
  const PagedKvOperand<kWords> keys(storage.cache.key(1));
  EXPECT_EQ(keys.get_tma_row(-1), -1);  // floor division would give -stride + 15
}

TEST(SparseIndex, EveryNegativeIndexBecomesMinusOne) {
  CacheStorage storage({.pages = 4, .layers = 3, .page_size = 16, .row = 4}, 1, 1);
  const PagedKvOperand<kWords> keys(storage.cache.key(1));
  // Truncating division turns -1 into row -1 by luck, and -2 … -15 into rows before page 0.
  for (std::int32_t encoded = -40; encoded < 0; ++encoded) EXPECT_EQ(keys.get_tma_row(encoded), -1);
  EXPECT_EQ(keys.get_tma_row(std::numeric_limits<std::int32_t>::min()), -1);
}

TEST(SparseIndex, PageOutsideThePoolBecomesMinusOne) {
  CacheStorage storage({.pages = 4, .layers = 3, .page_size = 16, .row = 4}, 1, 1);
  const PagedKvOperand<kWords> keys(storage.cache.key(1));
  EXPECT_EQ(keys.get_tma_row(4 * 16 - 1), 3 * 2 * 3 * 16 + 15);
  EXPECT_EQ(keys.get_tma_row(4 * 16), -1);
  EXPECT_EQ(keys.get_tma_row(std::numeric_limits<std::int32_t>::max()), -1);
}

TEST(SparseIndex, RowsOfSeveralLayersAreNotTheEncodedIndex) {
  CacheStorage storage({.pages = 4, .kv = 1, .layers = 3, .page_size = 16, .row = 4}, 1, 2);
  storage.entry(0, 0) = 2;
  storage.entry(0, 1) = 1;
  const PagedKvOperand<kWords> keys(storage.cache.key(2));
  for (std::uint32_t token = 0; token < 32; ++token) {
    const std::int32_t encoded =
        encode_sparse_index({storage.entry(0, token / 16), static_cast<int>(token % 16)}, 4, 16);
    EXPECT_EQ(keys.get_tma_row(encoded), static_cast<std::int32_t>(keys.row_idx(0, token)));
    EXPECT_NE(keys.get_tma_row(encoded), encoded);
  }
}

TEST(SparseIndex, OneLayerWithoutValuesIsTheIdentity) {
  CacheStorage storage({.pages = 4, .kv = 1, .page_size = 16, .row = 4}, 1, 1);
  const PagedKvOperand<kWords> keys(storage.cache.key(0));
  for (std::int32_t encoded = 0; encoded < 64; ++encoded)
    EXPECT_EQ(keys.get_tma_row(encoded), encoded);
}

}  // namespace
}  // namespace quire
