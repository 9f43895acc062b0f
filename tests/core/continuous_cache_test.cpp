// SPDX-License-Identifier: Apache-2.0
// One block per sequence slot, expressed as a paged cache with one table column.
#include "quire/continuous_cache.h"

#include "cache_storage.h"
#include "gtest/gtest.h"
#include "quire/error.h"
#include "quire/paged_kv_operand.h"
#include "quire/tile_loads.h"

namespace quire {
namespace {

using testing::word_at;

constexpr KvOperandConfig kSlots{.dtype = DType::u32, .page_size = 0, .head_dim = 4};
using Operand = PagedKvOperand<kSlots>;

class ContinuousCache : public ::testing::Test {
 protected:  // 3 slots of 100 tokens, K and V, 2 layers, 2 heads
  ContinuousCache()
      : storage_({.pages = 3, .layers = 2, .page_size = 100, .heads = 2, .row = 4}, 2, 1),
        cache_(continuous_cache(storage_.cache.blocks, storage_.cache.cache_lengths,
                                TensorView::contiguous(slots_, DType::u32, {2}))) {}

  std::uint32_t slots_[2] = {2, 0};
  testing::CacheStorage storage_;
  PagedKVCache cache_;
};

TEST_F(ContinuousCache, RowIsSlotTimesStridePlusToken) {
  const Operand keys(cache_.key(1));
  EXPECT_EQ(keys.rows_per_page_stride(), 2u * 2 * 100);
  EXPECT_EQ(keys.row_idx(0, 99), 2u * 400 + 99);
  EXPECT_EQ(keys.row_idx(1, 0), 0u);
  EXPECT_EQ(keys.num_kv_rows(), 2 * 400 + 100);
}

TEST_F(ContinuousCache, TokenPastTheSlotIsUnassigned) {
  const Operand keys(cache_.key(0));
  EXPECT_EQ(keys.row_idx(1, 100), kUnassignedRow);
  EXPECT_EQ(keys.block_paged_ptr<1>(1, 100, 0), nullptr);
}

TEST_F(ContinuousCache, TilesNeedNotDivideTheSlot) {
  const Operand values(cache_.value(0));
  const auto tile = values.populate<64, 64>(0, 64);
  EXPECT_EQ(tile.kNumPages, 1);
  EXPECT_EQ(tile.rows[0], 2u * 400 + 64);
  EXPECT_EQ(k_loads(tile).loads[0].rows, 64);
}

TEST_F(ContinuousCache, ReadsWhatTheTensorHolds) {
  const Operand values(cache_.value(1));
  for (std::uint32_t token = 0; token < 100; token += 7) {
    EXPECT_EQ(word_at(values.block_paged_ptr<1>(0, token, 1, 3)),
              cache_.blocks.offset({2, 1, 1, token, 1, 3}));
  }
}

TEST_F(ContinuousCache, AgreesWithThePagedView) {
  const KvLayerView view = cache_.key(1);
  const PagedKvOperand<KvOperandConfig{.dtype = DType::u32, .page_size = 100, .head_dim = 4}> paged(
      view);
  const Operand slots(view);
  for (std::uint32_t token = 0; token < 100; ++token) {
    EXPECT_EQ(slots.row_idx(0, token), paged.row_idx(0, token));
  }
  EXPECT_EQ(slots.get_tma_row(2 * 100 + 5), paged.get_tma_row(2 * 100 + 5));
}

TEST_F(ContinuousCache, SlotsMayBeStrided) {
  const std::uint32_t slots[4] = {1, 77, 2, 77};
  TensorView view = TensorView::contiguous(const_cast<std::uint32_t*>(slots), DType::u32, {2});
  view.strides[0] = 2;
  const PagedKVCache cache =
      continuous_cache(storage_.cache.blocks, storage_.cache.cache_lengths, view);
  const Operand keys(cache.key(0));
  EXPECT_EQ(keys.row_idx(1, 3), 2u * 400 + 3);
}

TEST_F(ContinuousCache, ScalesReadAsOne) {
  EXPECT_EQ(Operand(cache_.key(0)).load_scale<1>(0, 0, 0, 0)[0], 1.0f);
}

TEST_F(ContinuousCache, WrongTableIsAnError) {
  EXPECT_THROW(continuous_cache(storage_.cache.blocks, storage_.cache.cache_lengths,
                                TensorView::contiguous(slots_, DType::u32, {1})),
               Error);
  EXPECT_THROW(continuous_cache(storage_.cache.blocks, storage_.cache.cache_lengths,
                                TensorView::contiguous(slots_, DType::i32, {2})),
               Error);
  EXPECT_THROW(continuous_cache(storage_.cache.page_table, storage_.cache.cache_lengths,
                                TensorView::contiguous(slots_, DType::u32, {2})),
               Error);
}

}  // namespace
}  // namespace quire
