// SPDX-License-Identifier: Apache-2.0
// The operands without pages: a dense batch and a ragged one.
#include <numeric>
#include <optional>
#include <vector>

#include "cache_storage.h"
#include "gtest/gtest.h"
#include "quire/contiguous_operand.h"
#include "quire/error.h"
#include "quire/ragged_operand.h"

namespace quire {
namespace {

using testing::word_at;

static_assert(KvOperand<ContiguousOperand> && KvOperand<RaggedOperand>);
static_assert(KvDescriptors<ContiguousOperand> && KvDescriptors<RaggedOperand>);

template <typename T> std::vector<T> counting(std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), T{0});
  return values;
}

RowAddress row_of(const KvOperandRef& operand, std::int64_t sequence, std::int64_t head,
                  std::int64_t key) {
  return operand.row(sequence, head, key);
}

template <typename Make> std::optional<Error> error_of(const Make& make) {
  try {
    make();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

class ContiguousTest : public ::testing::Test {
 protected:  // batch 2, length 5, heads 3
  std::vector<std::uint32_t> values_ = counting<std::uint32_t>(2 * 5 * 3 * 4);
  std::vector<float> scales_ = counting<float>(2 * 5 * 3 * 2);
  TensorView view_ = TensorView::contiguous(values_.data(), DType::u32, {2, 5, 3, 4});
  TensorView scale_view_ = TensorView::contiguous(scales_.data(), DType::f32, {2, 5, 3, 2});
};

TEST_F(ContiguousTest, RowsAreSequenceTimesLengthPlusKey) {
  const ContiguousOperand operand(view_);
  EXPECT_EQ(word_at(row_of(operand, 1, 2, 3).row), view_.offset({1, 3, 2, 0}));
  EXPECT_EQ(operand.num_keys(1, 3), 5);  // new tokens are in the tensor: not added again
  EXPECT_EQ(operand.heads().count, 3);
  EXPECT_EQ(operand.row_matrix().num_rows, 10);
  EXPECT_EQ(operand.row_matrix().row_stride_bytes, 3 * 4 * 4);
}

TEST_F(ContiguousTest, KeyPastTheLengthIsNotTheNextSequencesFirst) {
  const ContiguousOperand operand(view_);
  RowAddress rows[4];
  operand.locate(0, 0, 3, 4, rows);
  EXPECT_NE(rows[1].row, nullptr);
  EXPECT_EQ(rows[2].row, nullptr);
  EXPECT_EQ(rows[3].row, nullptr);
}

TEST_F(ContiguousTest, ScalesFollowTheColumnsSlot) {
  const ContiguousOperand operand(view_, {.scales = scale_view_});
  const RowLayout layout = operand.layout();
  EXPECT_EQ(layout.format.parts[0].granularity, 2);
  EXPECT_EQ(layout.load_scale(row_of(operand, 1, 2, 3), 1), scale_view_.offset({1, 3, 2, 0}));
  EXPECT_EQ(layout.load_scale(row_of(operand, 1, 2, 3), 2), scale_view_.offset({1, 3, 2, 1}));
  EXPECT_EQ(layout.load_scale(row_of(operand, 1, 0, 5), 0), 0.0);
}

TEST_F(ContiguousTest, OneScaleMayServeAllHeads) {
  TensorView broadcast = scale_view_;
  broadcast.strides[2] = 0;
  const ContiguousOperand operand(view_, {.scales = broadcast});
  EXPECT_EQ(operand.layout().load_scale(row_of(operand, 1, 2, 3), 2),
            scale_view_.offset({1, 3, 0, 1}));
  EXPECT_EQ(operand.heads().plane_stride_bytes, 0);
}

TEST_F(ContiguousTest, HeadSliceKeepsItsStrides) {
  TensorView slice = view_;  // heads 1 and 2
  slice.data = values_.data() + 4;
  slice.shape[2] = 2;
  const ContiguousOperand operand(slice);
  EXPECT_EQ(word_at(row_of(operand, 1, 0, 4).row), view_.offset({1, 4, 1, 0}));
}

TEST_F(ContiguousTest, SequencesWithAGapHaveRowsButNoMatrix) {
  TensorView gapped = view_;
  gapped.shape[1] = 4;
  const ContiguousOperand operand(gapped);
  EXPECT_EQ(word_at(row_of(operand, 1, 0, 3).row), view_.offset({1, 3, 0, 0}));
  EXPECT_EQ(row_of(operand, 0, 0, 4).row, nullptr);
  const auto error = error_of([&] { operand.row_matrix(); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->argument(), "values");
}

class RaggedTest : public ::testing::Test {
 protected:  // lengths 3, 0, 4; heads 2
  std::vector<std::uint32_t> values_ = counting<std::uint32_t>(7 * 2 * 4);
  std::vector<std::uint32_t> offsets_ = {0, 3, 3, 7};
  std::vector<float> scales_ = counting<float>(2 * 7);
  TensorView view_ = TensorView::contiguous(values_.data(), DType::u32, {7, 2, 4});
  TensorView offset_view_ = TensorView::contiguous(offsets_.data(), DType::u32, {4});
};

TEST_F(RaggedTest, RowsStartAtTheSequencesOffset) {
  const RaggedOperand operand(view_, offset_view_);
  RowAddress rows[4];
  operand.locate(2, 1, 0, 4, rows);
  for (std::int64_t key = 0; key < 4; ++key) {
    EXPECT_EQ(word_at(rows[key].row), view_.offset({3 + key, 1, 0}));
  }
  EXPECT_EQ(operand.row_matrix().num_rows, 7);
}

TEST_F(RaggedTest, LengthsAreThoseOfTheOffsetsWhateverIsNew) {
  const RaggedOperand operand(view_, offset_view_);
  EXPECT_EQ(operand.num_keys(0, 3), 3);
  EXPECT_EQ(operand.num_keys(1, 0), 0);
  EXPECT_EQ(operand.num_keys(2, 1), 4);
}

TEST_F(RaggedTest, KeyPastItsSequenceIsNotTheNextOnesFirst) {
  const RaggedOperand operand(view_, offset_view_);
  EXPECT_EQ(row_of(operand, 0, 0, 3).row, nullptr);
  EXPECT_EQ(row_of(operand, 1, 0, 0).row, nullptr);
  EXPECT_EQ(row_of(operand, 2, 0, 4).row, nullptr);
}

TEST_F(RaggedTest, ScalesMayBeHeadMajorOrShared) {
  TensorView scales = TensorView::contiguous(scales_.data(), DType::f32, {7, 2, 1});
  scales.strides = {1, 7, 1};  // [heads, tokens] in memory
  const RaggedOperand per_head(view_, offset_view_, {.scales = scales});
  EXPECT_EQ(per_head.layout().load_scale(row_of(per_head, 2, 1, 1), 3), 11.0);
  scales.strides = {1, 0, 1};
  const RaggedOperand shared(view_, offset_view_, {.scales = scales});
  EXPECT_EQ(shared.layout().load_scale(row_of(shared, 2, 1, 1), 3), 4.0);
  EXPECT_EQ(shared.layout().load_scale(row_of(shared, 0, 0, 3), 0), 0.0);
}

TEST_F(RaggedTest, FormatMayBeGiven) {
  const TensorView bytes = TensorView::contiguous(values_.data(), DType::u8, {2, 1, 56});
  const RowFormat format = RowFormat::mla_fp8_block(32, 4, 16);  // 32 + 2 · 4 + 4 · 2
  ASSERT_EQ(format.row_bytes, 48);
  const TensorView rows = TensorView::contiguous(values_.data(), DType::u8, {2, 1, 48});
  const RaggedOperand operand(rows, offset_view_, {.format = format});
  EXPECT_EQ(operand.layout().format, format);
  EXPECT_TRUE(
      error_of([&] { RaggedOperand(bytes, offset_view_, {.format = format}); }).has_value());
}

TEST_F(RaggedTest, WrongTensorsAreNamed) {
  const TensorView flat = TensorView::contiguous(values_.data(), DType::u32, {7, 8});
  const TensorView signed_offsets = TensorView::contiguous(offsets_.data(), DType::i32, {4});
  const TensorView short_scales = TensorView::contiguous(scales_.data(), DType::f32, {6, 2, 1});
  EXPECT_EQ(error_of([&] { RaggedOperand(flat, offset_view_); })->argument(), "values");
  const auto offsets = error_of([&] { RaggedOperand(view_, signed_offsets); });
  ASSERT_TRUE(offsets.has_value());
  EXPECT_EQ(offsets->argument(), "row_offsets");
  EXPECT_EQ(offsets->code(), ErrorCode::invalid_type);
  EXPECT_EQ(
      error_of([&] { RaggedOperand(view_, offset_view_, {.scales = short_scales}); })->argument(),
      "scales");
}

}  // namespace
}  // namespace quire
