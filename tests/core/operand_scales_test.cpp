// SPDX-License-Identifier: Apache-2.0
// Scales of the paged operands: own pages, own strides, slots that round down.
#include <cstring>

#include "cache_storage.h"
#include "gtest/gtest.h"
#include "quire/element.h"
#include "quire/paged_kv_operand.h"
#include "quire/paged_scales_operand.h"

namespace quire {
namespace {

using testing::CacheStorage;

// 256 columns of u32 in 4 slots of 64, over 3 layers.
constexpr KvOperandConfig kScaled{.dtype = DType::u32,
                                  .page_size = 16,
                                  .head_dim = 256,
                                  .scale_dtype = DType::f32,
                                  .granularity = 64};
using Keys = PagedKvOperand<kScaled>;
using Scales = PagedScalesOperand<kScaled>;

static_assert(KvScales<Keys>);
static_assert(KvOperand<Scales> && !KvDescriptors<Scales> && !KvScales<Scales>);
static_assert(Keys::kConfig.quantization_enabled() && Keys::kConfig.granularity == 64);
static_assert(Scales::kConfig.dtype == DType::f32 && Scales::kConfig.head_dim == 4);

class OperandScales : public ::testing::Test {
 protected:
  OperandScales()
      : storage_({.pages = 4, .layers = 3, .page_size = 16, .heads = 2, .row = 256}, 1, 2) {
    storage_.add_scales(4, 6);
    storage_.entry(0, 0) = 3;
    storage_.entry(0, 1) = 1;
  }
  float expected(std::int64_t page, std::int64_t kv, std::int64_t layer, std::int64_t token,
                 std::int64_t head, std::int64_t slot) const {
    return static_cast<float>(storage_.cache.scales->offset({page, kv, layer, token, head, slot}));
  }

  CacheStorage storage_;
};

TEST_F(OperandScales, KScalesOfBlockDoNotAliasVScalesOfThePreviousBlock) {
  const Keys keys(storage_.cache.key(0));
  const Keys values(storage_.cache.value(0));
  EXPECT_EQ(keys.load_scale<1>(0, 16, 0, 0)[0], expected(1, 0, 0, 0, 0, 0));
  storage_.entry(0, 0) = 0;
  EXPECT_EQ(values.load_scale<1>(0, 0, 0, 0)[0], expected(0, 1, 0, 0, 0, 0));
  EXPECT_NE(keys.load_scale<1>(0, 16, 0, 0)[0], values.load_scale<1>(0, 0, 0, 0)[0]);
}

TEST_F(OperandScales, InnerLayerUsesTheFullStrideOfTheScalesPool) {
  const Keys values(storage_.cache.value(2));
  for (std::uint32_t token = 0; token < 32; ++token) {
    EXPECT_EQ(values.load_scale<1>(0, token, 1, 0)[0],
              expected(token < 16 ? 3 : 1, 1, 2, token % 16, 1, 0));
  }
}

TEST_F(OperandScales, SlotRoundsDownNotUp) {
  const Keys keys(storage_.cache.key(0));
  EXPECT_EQ(keys.load_scale<1>(0, 0, 0, 63)[0], expected(3, 0, 0, 0, 0, 0));
  EXPECT_EQ(keys.load_scale<1>(0, 0, 0, 64)[0], expected(3, 0, 0, 0, 0, 1));
  EXPECT_EQ(keys.load_scale<1>(0, 0, 0, 255)[0], expected(3, 0, 0, 0, 0, 3));
}

TEST_F(OperandScales, VectorTakesConsecutiveSlotsAndStopsAtTheRowsEnd) {
  const Keys keys(storage_.cache.key(1));
  const ScaleVector<4> all = keys.load_scale<4>(0, 2, 0, 0);
  for (int slot = 0; slot < 4; ++slot) EXPECT_EQ(all[slot], expected(3, 0, 1, 2, 0, slot));
  const ScaleVector<4> tail = keys.load_scale<4>(0, 2, 0, 128);
  EXPECT_EQ(tail[1], expected(3, 0, 1, 2, 0, 3));
  EXPECT_EQ(tail[2], 0.0f);  // not the next head's first scale
}

TEST_F(OperandScales, OwnPageTableWinsOverTheValuesTable) {
  storage_.add_scales_table({5, 4});
  const Keys keys(storage_.cache.key(0));
  EXPECT_EQ(keys.load_scale<1>(0, 0, 0, 0)[0], expected(5, 0, 0, 0, 0, 0));
  EXPECT_EQ(keys.load_scale<1>(0, 17, 0, 0)[0], expected(4, 0, 0, 1, 0, 0));
  EXPECT_EQ(keys.row_idx(0, 0), 3 * keys.rows_per_page_stride());
}

TEST_F(OperandScales, BoundIsTheScalesPoolNotTheValuesPool) {
  storage_.add_scales_table({5, 6});  // 6 scale pages, 4 value pages
  const Keys keys(storage_.cache.key(0));
  EXPECT_NE(keys.scales_block_paged_ptr(0, 0, 0), nullptr);
  EXPECT_EQ(keys.scales_block_paged_ptr(0, 16, 0), nullptr);
  EXPECT_EQ(keys.load_scale<2>(0, 16, 0, 0)[0], 0.0f);
}

TEST_F(OperandScales, PointerAndLoadAgree) {
  const Keys keys(storage_.cache.value(1));
  float at_pointer;
  std::memcpy(&at_pointer, keys.scales_block_paged_ptr(0, 19, 1, 130), sizeof at_pointer);
  EXPECT_EQ(at_pointer, keys.load_scale<1>(0, 19, 1, 130)[0]);
  EXPECT_EQ(at_pointer, expected(1, 1, 1, 3, 1, 2));
}

TEST_F(OperandScales, RawPointerIsShiftedToLayerAndSide) {
  const Keys values(storage_.cache.value(2));
  EXPECT_EQ(values.scales_raw_ptr(), reinterpret_cast<const std::byte*>(storage_.scales.data()) +
                                         storage_.cache.scales->offset({0, 1, 2, 0, 0, 0}) * 4);
}

TEST_F(OperandScales, TwinReadsScalesAsRows) {
  const Scales scales(storage_.cache.key(2));
  const std::byte* tile = scales.block_paged_ptr<16>(0, 16, 1, 64);
  for (int token = 0; token < 16; ++token) {
    float value;
    std::memcpy(&value, tile + token * scales.row_stride_bytes(), sizeof value);
    EXPECT_EQ(value, expected(1, 0, 2, token, 1, 1));
  }
}

TEST_F(OperandScales, TwinsRowsAgreeWithTheKeys) {
  storage_.add_scales_table({5, 4});
  const Keys keys(storage_.cache.key(1));
  const Scales scales(storage_.cache.key(1));
  EXPECT_EQ(scales.row_idx(0, 18), keys.row_idx(0, 18));
  EXPECT_EQ(scales.num_kv_rows(), keys.num_kv_rows());
  EXPECT_EQ(scales.get_tma_row(20), keys.get_tma_row(20));
  EXPECT_EQ((scales.populate<32, 32>(0, 0).rows[1]), (keys.populate<32, 32>(0, 0).rows[1]));
}

TEST(UnscaledOperand, ScalesAreOneAndHaveNoAddress) {
  CacheStorage storage({.pages = 2, .page_size = 16, .row = 4}, 1, 1, 0);
  const PagedKvOperand<KvOperandConfig{.dtype = DType::u32, .page_size = 16, .head_dim = 4}> keys(
      storage.cache.key(0));
  EXPECT_EQ(keys.load_scale<2>(0, 0, 0, 0)[1], 1.0f);
  EXPECT_EQ(keys.scales_block_paged_ptr(0, 0, 0), nullptr);
  EXPECT_EQ(keys.scales_raw_ptr(), nullptr);
}

template <DType kDtype> void expect_scales_widen_exactly() {
  std::byte word[4];
  for (const double value : {0.0, 1.0, 0.25, 1.5, 448.0, 0.001953125}) {
    store_element(word, kDtype, 0, value);
    EXPECT_EQ(load_scale_value<kDtype>(word), value);
  }
}

TEST(ScaleDtypes, F32) {
  expect_scales_widen_exactly<DType::f32>();
}
TEST(ScaleDtypes, F16) {
  expect_scales_widen_exactly<DType::f16>();
}
TEST(ScaleDtypes, BF16) {
  expect_scales_widen_exactly<DType::bf16>();
}
TEST(ScaleDtypes, Fp8E4M3) {
  expect_scales_widen_exactly<DType::fp8_e4m3>();
}
TEST(ScaleDtypes, Fp8E5M2) {
  std::byte word{};
  store_element(&word, DType::fp8_e5m2, 0, 57344.0);
  EXPECT_EQ(load_scale_value<DType::fp8_e5m2>(&word), 57344.0f);
}

}  // namespace
}  // namespace quire
