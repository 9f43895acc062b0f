// SPDX-License-Identifier: Apache-2.0
// What operands refuse, and what the message names.
#include "quire/operand_checks.h"

#include <optional>
#include <string>

#include "cache_storage.h"
#include "gtest/gtest.h"
#include "quire/contiguous_operand.h"
#include "quire/error.h"
#include "quire/paged_kv_operand.h"
#include "quire/ragged_operand.h"

namespace quire {
namespace {

constexpr KvOperandConfig kConfig{.dtype = DType::bf16, .page_size = 64, .head_dim = 128};

// A view that fits kConfig: 16 pages, K and V, 2 layers, 4 heads. Nothing is read.
KvLayerView good_view() {
  KvLayerView view;
  view.row_format = RowFormat::uniform(DType::bf16, 128);
  view.num_pages = 16;
  view.page_size = 64;
  view.num_heads = 4;
  view.head_stride_bytes = 256;
  view.token_stride_bytes = 4 * 256;
  view.page_stride_bytes = 2 * 2 * 64 * view.token_stride_bytes;
  view.max_pages = 8;
  return view;
}

template <typename Make> std::optional<Error> error_of(const Make& make) {
  try {
    make();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

std::optional<Error> reject(const KvLayerView& view, const KvOperandConfig& config = kConfig) {
  return error_of([&] { checked_rows_per_page_stride(view, config); });
}

TEST(PagedOperandChecks, GoodViewPasses) {
  EXPECT_EQ(checked_rows_per_page_stride(good_view(), kConfig), 2u * 2 * 64);
}

TEST(PagedOperandChecks, PageSizeMustBeTheConfigured) {
  KvLayerView view = good_view();
  view.page_size = 128;
  const auto error = reject(view);
  ASSERT_TRUE(error.has_value());
  EXPECT_STREQ(error->what(), "PagedKvOperand: 'view.page_size' must be 64, got 128");
}

TEST(PagedOperandChecks, DtypeIsATypeError) {
  KvLayerView view = good_view();
  view.row_format = RowFormat::uniform(DType::f16, 128);
  const auto error = reject(view);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::invalid_type);
  EXPECT_EQ(error->argument(), "view.dtype");
}

TEST(PagedOperandChecks, RowMustHaveTheConfiguredColumns) {
  KvLayerView view = good_view();
  view.row_format = RowFormat::uniform(DType::bf16, 64);
  ASSERT_TRUE(reject(view).has_value());
  EXPECT_EQ(reject(view)->argument(), "view.row_bytes");
}

TEST(PagedOperandChecks, MixedRowCountsInItsFirstDtype) {
  KvLayerView view = good_view();
  view.row_format = RowFormat::mla_fp8_block();
  const KvOperandConfig config{.dtype = DType::fp8_e4m3, .page_size = 64, .head_dim = 656};
  EXPECT_FALSE(reject(view, config).has_value());
}

TEST(PagedOperandChecks, PagesMustBeWholeRowsApart) {
  KvLayerView view = good_view();
  view.page_stride_bytes += 16;
  ASSERT_TRUE(reject(view).has_value());
  EXPECT_EQ(reject(view)->argument(), "view.page_stride_bytes");
}

TEST(PagedOperandChecks, RowsMustNotOverlap) {
  KvLayerView view = good_view();
  view.token_stride_bytes = 128;
  ASSERT_TRUE(reject(view).has_value());
  EXPECT_EQ(reject(view)->argument(), "view.token_stride_bytes");
  view.token_stride_bytes = 0;
  EXPECT_TRUE(reject(view).has_value());
}

TEST(PagedOperandChecks, RowsStayBelowTwoToTheThirty) {
  KvLayerView view = good_view();  // 256 rows from page to page
  view.num_pages = (1 << 22) - 1;
  EXPECT_FALSE(reject(view).has_value());
  view.num_pages = 1 << 22;
  ASSERT_TRUE(reject(view).has_value());
  EXPECT_EQ(reject(view)->argument(), "view.num_pages");
}

TEST(PagedOperandChecks, AbsurdPoolDoesNotOverflowTheCheck) {
  KvLayerView view = good_view();
  view.num_pages = std::int64_t{1} << 62;
  EXPECT_TRUE(reject(view).has_value());
}

TEST(PagedOperandChecks, EncodedIndicesStayBelowTwoToTheThirtyOne) {
  KvLayerView view = good_view();
  view.page_stride_bytes = 0;  // every page the same memory: rows are few, indices are not
  view.num_pages = (1 << 25) - 1;
  EXPECT_FALSE(reject(view).has_value());
  view.num_pages = 1 << 25;
  ASSERT_TRUE(reject(view).has_value());
  EXPECT_NE(std::string(reject(view)->what()).find("2^31"), std::string::npos);
}

TEST(PagedOperandChecks, ScaledCacheIsNotReadWithoutItsScales) {
  KvLayerView view = good_view();
  view.row_format = RowFormat::scaled(DType::bf16, 128, 128);
  EXPECT_TRUE(reject(view).has_value());
}

TEST(PagedOperandChecks, ConfiguredScalesMustExistWithTheirGranularity) {
  constexpr KvOperandConfig kScaled{
      .dtype = DType::bf16, .page_size = 64, .head_dim = 128, .granularity = 64};
  KvLayerView view = good_view();
  ASSERT_TRUE(reject(view, kScaled).has_value());
  EXPECT_EQ(reject(view, kScaled)->argument(), "view.scales");
  float scale = 1;
  view.row_format = RowFormat::scaled(DType::bf16, 128, 64);
  view.scales.data = reinterpret_cast<std::byte*>(&scale);
  view.scales.num_slots = 2;
  EXPECT_FALSE(reject(view, kScaled).has_value());
  view.scales.num_slots = 1;
  EXPECT_EQ(reject(view, kScaled)->argument(), "view.scales.num_slots");
  view.row_format = RowFormat::scaled(DType::bf16, 128, 128);
  EXPECT_EQ(reject(view, kScaled)->argument(), "granularity");
  view.scales.dtype = DType::f16;
  EXPECT_EQ(reject(view, kScaled)->argument(), "view.scales.dtype");
}

TEST(PagedOperandChecks, SlotConfigNeedsAOneColumnTable) {
  const KvOperandConfig config{.dtype = DType::bf16, .page_size = 0, .head_dim = 128};
  KvLayerView view = good_view();
  ASSERT_TRUE(reject(view, config).has_value());
  EXPECT_EQ(reject(view, config)->argument(), "view.max_pages");
  view.max_pages = 1;
  EXPECT_FALSE(reject(view, config).has_value());
}

TEST(ContiguousOperandChecks, GapBetweenSequencesBreaksTheRowNumbering) {
  constexpr KvOperandConfig kDense{.dtype = DType::bf16, .head_dim = 8};
  TensorView values = TensorView::contiguous(nullptr, DType::bf16, {2, 4, 1, 8});
  EXPECT_FALSE(error_of([&] { check_contiguous_operand(values, nullptr, kDense); }).has_value());
  values.strides[0] += 8;
  const auto error = error_of([&] { check_contiguous_operand(values, nullptr, kDense); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->argument(), "values.strides[0]");
}

TEST(ContiguousOperandChecks, ScalesMustFitTheValues) {
  constexpr KvOperandConfig kDense{.dtype = DType::bf16, .head_dim = 8, .granularity = 4};
  const TensorView values = TensorView::contiguous(nullptr, DType::bf16, {2, 4, 1, 8});
  const auto check = [&](std::initializer_list<std::int64_t> shape) {
    const TensorView scales = TensorView::contiguous(nullptr, DType::f32, shape);
    return error_of([&] { check_contiguous_operand(values, &scales, kDense); });
  };
  EXPECT_FALSE(check({2, 4, 1, 2}).has_value());
  EXPECT_TRUE(check({2, 4, 1, 3}).has_value());
  EXPECT_TRUE(check({2, 5, 1, 2}).has_value());
  EXPECT_TRUE(error_of([&] { check_contiguous_operand(values, nullptr, kDense); }).has_value());
}

TEST(RaggedOperandChecks, ShapesAndOffsetsAreNamed) {
  constexpr KvOperandConfig kRagged{.dtype = DType::bf16, .head_dim = 8};
  const TensorView values = TensorView::contiguous(nullptr, DType::bf16, {7, 2, 8});
  const TensorView offsets = TensorView::contiguous(nullptr, DType::u32, {3});
  const TensorView signed_offsets = TensorView::contiguous(nullptr, DType::i32, {3});
  const TensorView flat = TensorView::contiguous(nullptr, DType::bf16, {7, 16});
  EXPECT_FALSE(
      error_of([&] { check_ragged_operand(values, offsets, nullptr, kRagged); }).has_value());
  const auto error =
      error_of([&] { check_ragged_operand(values, signed_offsets, nullptr, kRagged); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->argument(), "row_offsets");
  EXPECT_EQ(error->code(), ErrorCode::invalid_type);
  EXPECT_EQ(error_of([&] { check_ragged_operand(flat, offsets, nullptr, kRagged); })->argument(),
            "values");
}

}  // namespace
}  // namespace quire
