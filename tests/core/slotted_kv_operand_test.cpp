// SPDX-License-Identifier: Apache-2.0
#include "quire/slotted_kv_operand.h"

#include <array>
#include <limits>
#include <type_traits>
#include <vector>

#include "cache_storage.h"
#include "gtest/gtest.h"
#include "quire/error.h"

namespace quire {
namespace {

using testing::CacheStorage;
using testing::word_at;

static_assert(KvOperand<SlottedKvOperand> && !KvDescriptors<SlottedKvOperand>);

template <typename T> TensorView view_of(std::vector<T>& slots) {
  return TensorView::contiguous(slots.data(),
                                std::is_same_v<T, std::int64_t> ? DType::i64 : DType::i32,
                                {static_cast<std::int64_t>(slots.size())});
}

std::vector<RowAddress> locate(const SlottedKvOperand& operand, std::int64_t head,
                               std::int64_t first, std::int64_t count) {
  std::vector<RowAddress> rows(static_cast<std::size_t>(count));
  operand.locate(0, head, first, count, rows.data());
  return rows;
}

template <typename T> class SlottedRows : public ::testing::Test {};
using SlotTypes = ::testing::Types<std::int64_t, std::int32_t>;
TYPED_TEST_SUITE(SlottedRows, SlotTypes);

TYPED_TEST(SlottedRows, EveryLayerAndSideHasItsOwn) {
  const CacheStorage storage({.pages = 4, .layers = 3, .page_size = 2, .heads = 2, .row = 4}, 1, 1);
  std::vector<TypeParam> slots{5, 0, 7, 2};
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    for (std::int64_t kv = 0; kv < 2; ++kv) {
      const SlottedKvOperand rows(kv == 0 ? storage.cache.key(layer) : storage.cache.value(layer),
                                  view_of(slots));
      EXPECT_EQ(rows.num_keys(0, 4), 4);
      EXPECT_EQ(rows.heads().count, 2);
      const auto found = locate(rows, 1, 0, 4);
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(word_at(found[i].row),
                  storage.cache.blocks.offset({slots[i] / 2, kv, layer, slots[i] % 2, 1, 0}));
        EXPECT_EQ(found[i].plane, nullptr);
      }
      EXPECT_EQ(locate(rows, 1, 2, 1)[0], found[2]);
    }
  }
}

// Nobody has checked what a tensor holds: no slot outside of the pool may have an address.
TYPED_TEST(SlottedRows, OutsideOfThePoolThereIsNothing) {
  const CacheStorage storage({.pages = 3, .page_size = 4, .row = 4}, 1, 1);
  std::vector<TypeParam> slots{-1, 12, 11, std::numeric_limits<TypeParam>::max(),
                               std::numeric_limits<TypeParam>::min()};
  const SlottedKvOperand rows(storage.cache.key(0), view_of(slots));
  const auto found = locate(rows, 0, 0, 5);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(found[i].row != nullptr, i == 2) << slots[i];
}

TEST(SlottedOperand, ScalesStandAtTheSameSlots) {
  CacheStorage storage({.pages = 3, .page_size = 4, .heads = 2, .row = 4, .dtype = DType::u8}, 1,
                       1);
  std::vector<float> scales(3 * 2 * 1 * 4 * 2);
  storage.cache.scales = TensorView::contiguous(scales.data(), DType::f32, {3, 2, 1, 4, 2, 1});
  storage.cache.row_format = RowFormat::scaled(DType::fp8_e4m3, 4, 4);
  std::vector<std::int64_t> slots{9, -1, 12};
  const SlottedKvOperand rows(storage.cache.value(0), view_of(slots));
  const auto found = locate(rows, 1, 0, 3);
  const auto expected = storage.cache.scales->offset({2, 1, 0, 1, 1, 0});
  EXPECT_EQ(found[0].plane, reinterpret_cast<std::byte*>(scales.data() + expected));
  EXPECT_EQ(found[1].plane, nullptr);
  EXPECT_EQ(found[2].plane, nullptr);
}

TEST(SlottedOperand, OtherTensorsAreRefused) {
  const CacheStorage storage({.pages = 1}, 1, 1);
  std::array<std::uint32_t, 2> words{};
  EXPECT_THROW(
      SlottedKvOperand(storage.cache.key(0), TensorView::contiguous(words.data(), DType::u32, {2})),
      Error);
  EXPECT_THROW(SlottedKvOperand(storage.cache.key(0),
                                TensorView::contiguous(words.data(), DType::i32, {1, 2})),
               Error);
}

}  // namespace
}  // namespace quire
