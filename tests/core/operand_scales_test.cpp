// SPDX-License-Identifier: Apache-2.0
// Scales of the paged operand: own pages, own strides, slots that round down.
#include "cache_storage.h"
#include "gtest/gtest.h"
#include "quire/element.h"
#include "quire/paged_kv_operand.h"

namespace quire {
namespace {

using testing::CacheStorage;

// 256 columns of u32 in 4 slots of 64, over 3 layers; as many rows and scale pages as said.
class OperandScales : public ::testing::Test {
 protected:
  OperandScales()
      : storage_({.pages = 4, .layers = 3, .page_size = 16, .heads = 2, .row = 256}, 1, 2) {
    storage_.add_scales(4, 6);
    storage_.entry(0, 0) = 3;
    storage_.entry(0, 1) = 1;
  }
  static double scale(const KvLayerView& view, std::int64_t head, std::int64_t token,
                      std::int32_t column) {
    const PagedKvOperand operand(view);
    const KvOperandRef rows = operand;
    return rows.layout().load_scale(rows.row(0, head, token), column);
  }
  double expected(std::int64_t page, std::int64_t kv, std::int64_t layer, std::int64_t token,
                  std::int64_t head, std::int64_t slot) const {
    return static_cast<double>(storage_.cache.scales->offset({page, kv, layer, token, head, slot}));
  }

  CacheStorage storage_;
};

TEST_F(OperandScales, KScalesOfBlockDoNotAliasVScalesOfThePreviousBlock) {
  EXPECT_EQ(scale(storage_.cache.key(0), 0, 16, 0), expected(1, 0, 0, 0, 0, 0));
  storage_.entry(0, 0) = 0;
  EXPECT_EQ(scale(storage_.cache.value(0), 0, 0, 0), expected(0, 1, 0, 0, 0, 0));
}

TEST_F(OperandScales, InnerLayerUsesTheFullStrideOfTheScalesPool) {
  for (std::int64_t token = 0; token < 32; ++token) {
    EXPECT_EQ(scale(storage_.cache.value(2), 1, token, 0),
              expected(token < 16 ? 3 : 1, 1, 2, token % 16, 1, 0));
  }
}

TEST_F(OperandScales, SlotRoundsDownNotUp) {
  EXPECT_EQ(scale(storage_.cache.key(0), 0, 0, 63), expected(3, 0, 0, 0, 0, 0));
  EXPECT_EQ(scale(storage_.cache.key(0), 0, 0, 64), expected(3, 0, 0, 0, 0, 1));
  EXPECT_EQ(scale(storage_.cache.key(0), 0, 0, 255), expected(3, 0, 0, 0, 0, 3));
}

TEST_F(OperandScales, OwnPageTableWinsOverTheValuesTable) {
  storage_.add_scales_table({5, 4});
  EXPECT_EQ(scale(storage_.cache.key(0), 0, 0, 0), expected(5, 0, 0, 0, 0, 0));
  EXPECT_EQ(scale(storage_.cache.key(0), 0, 17, 0), expected(4, 0, 0, 1, 0, 0));
}

TEST_F(OperandScales, BoundIsTheScalesPoolNotTheValuesPool) {
  storage_.add_scales_table({5, 6});  // 6 scale pages, 4 value pages
  const PagedKvOperand keys(storage_.cache.key(0));
  RowAddress rows[17];
  keys.locate(0, 0, 0, 17, rows);
  EXPECT_NE(rows[15].plane, nullptr);
  EXPECT_NE(rows[16].row, nullptr);
  EXPECT_EQ(rows[16].plane, nullptr);
  EXPECT_EQ(scale(storage_.cache.key(0), 0, 16, 0), 0.0);
}

TEST_F(OperandScales, ScalesExistWithoutTheirRow) {
  storage_.add_scales_table({5, 4});
  storage_.entry(0, 1) = 4;  // no page of values
  const PagedKvOperand keys(storage_.cache.key(0));
  RowAddress row;
  keys.locate(0, 0, 16, 1, &row);
  EXPECT_EQ(row.row, nullptr);
  EXPECT_NE(row.plane, nullptr);
}

TEST_F(OperandScales, NeighboursAreOneTokenStrideApart) {
  const KvLayerView view = storage_.cache.key(1);
  const PagedKvOperand keys(view);
  RowAddress rows[16];
  keys.locate(0, 1, 16, 16, rows);
  for (std::int64_t token = 0; token < 16; ++token) {
    EXPECT_EQ(load_element(rows[token].plane, DType::f32, 2), expected(1, 0, 1, token, 1, 2));
  }
  EXPECT_EQ(keys.heads().plane_stride_bytes, 4 * 4);
}

TEST(UnscaledOperand, ScalesAreOneAndHaveNoAddress) {
  CacheStorage storage({.pages = 2, .page_size = 16, .row = 4}, 1, 1, 0);
  const PagedKvOperand keys(storage.cache.key(0));
  RowAddress row;
  keys.locate(0, 0, 0, 1, &row);
  EXPECT_EQ(row.plane, nullptr);
  EXPECT_EQ(keys.layout().load_scale(row, 3), 1.0);
  EXPECT_EQ(keys.heads().plane_stride_bytes, 0);
}

}  // namespace
}  // namespace quire
