// SPDX-License-Identifier: Apache-2.0
// The operands without pages: a dense batch and a ragged one.
#include <numeric>
#include <vector>

#include "cache_storage.h"
#include "gtest/gtest.h"
#include "quire/contiguous_operand.h"
#include "quire/ragged_operand.h"

namespace quire {
namespace {

using testing::word_at;

constexpr KvOperandConfig kPlain{.dtype = DType::u32, .head_dim = 4};
constexpr KvOperandConfig kScaled{
    .dtype = DType::u32, .head_dim = 4, .scale_dtype = DType::f32, .granularity = 2};
constexpr KvOperandConfig kRowScaled{
    .dtype = DType::u32, .head_dim = 4, .scale_dtype = DType::f32, .granularity = 4};

static_assert(KvOperand<ContiguousOperand<kPlain>> && KvOperand<RaggedOperand<kPlain>>);
static_assert(KvScales<ContiguousOperand<kScaled>> && KvScales<RaggedOperand<kRowScaled>>);
static_assert(KvDescriptors<ContiguousOperand<kPlain>> && KvDescriptors<RaggedOperand<kPlain>>);
static_assert(KvScaleDescriptors<ContiguousOperand<kScaled>>);
static_assert(!KvScaleDescriptors<ContiguousOperand<kPlain>> &&
              !KvScaleDescriptors<RaggedOperand<kPlain>>);

template <typename T> std::vector<T> counting(std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), T{0});
  return values;
}

class ContiguousTest : public ::testing::Test {
 protected:  // batch 2, length 5, heads 3
  std::vector<std::uint32_t> values_ = counting<std::uint32_t>(2 * 5 * 3 * 4);
  std::vector<float> scales_ = counting<float>(2 * 5 * 3 * 2);
  TensorView view_ = TensorView::contiguous(values_.data(), DType::u32, {2, 5, 3, 4});
  TensorView scale_view_ = TensorView::contiguous(scales_.data(), DType::f32, {2, 5, 3, 2});
};

TEST_F(ContiguousTest, RowsAreSequenceTimesLengthPlusToken) {
  const ContiguousOperand<kPlain> operand(view_);
  EXPECT_EQ(operand.row_idx(1, 3), 8u);
  EXPECT_EQ(operand.num_kv_rows(), 10);
  EXPECT_EQ((operand.populate<64, 1>(1, 2).rows[0]), 7u);
  EXPECT_EQ(word_at(operand.block_paged_ptr<2>(1, 3, 2, 1)), view_.offset({1, 3, 2, 1}));
}

TEST_F(ContiguousTest, TokenPastTheLengthIsNotTheNextSequencesFirst) {
  const ContiguousOperand<kPlain> operand(view_);
  EXPECT_EQ(operand.row_idx(0, 5), kUnassignedRow);
  EXPECT_EQ(operand.block_paged_ptr<1>(0, 5, 0), nullptr);
}

TEST_F(ContiguousTest, LengthCountsAllKeysSoNewTokensAreNotAddedTwice) {
  const ContiguousOperand<kPlain> operand(view_);
  EXPECT_EQ(operand.cache_length(0), 5u);
  EXPECT_EQ(operand.max_context_length(), 5);
  EXPECT_EQ(num_keys(operand, 1, 3), 5);
}

TEST_F(ContiguousTest, SparseIndexIsTheRow) {
  const ContiguousOperand<kPlain> operand(view_);
  EXPECT_EQ(operand.get_tma_row(7), 7);
  EXPECT_EQ(operand.get_tma_row(-3), -1);
  EXPECT_EQ(operand.get_tma_row(10), -1);
}

TEST_F(ContiguousTest, ScalesFollowTheColumnsSlot) {
  const ContiguousOperand<kScaled> operand(view_, scale_view_);
  EXPECT_EQ(operand.load_scale<1>(1, 3, 2, 1)[0], scale_view_.offset({1, 3, 2, 0}));
  EXPECT_EQ(operand.load_scale<1>(1, 3, 2, 2)[0], scale_view_.offset({1, 3, 2, 1}));
  EXPECT_EQ(operand.load_scale<2>(1, 3, 2, 2)[1], 0.0f);
  EXPECT_EQ(operand.load_scale<1>(1, 5, 0, 0)[0], 0.0f);
  EXPECT_EQ(operand.scale_matrix().num_rows, 60);
}

TEST_F(ContiguousTest, UnscaledReadsOne) {
  const ContiguousOperand<kPlain> operand(view_);
  EXPECT_EQ(operand.load_scale<1>(0, 0, 0, 0)[0], 1.0f);
  EXPECT_EQ(operand.scales_raw_ptr(), nullptr);
}

TEST_F(ContiguousTest, HeadSliceKeepsItsStrides) {
  TensorView slice = view_;  // heads 1 and 2
  slice.data = values_.data() + 4;
  slice.shape[2] = 2;
  const ContiguousOperand<kPlain> operand(slice);
  EXPECT_EQ(word_at(operand.block_paged_ptr<1>(1, 4, 0, 0)), view_.offset({1, 4, 1, 0}));
  EXPECT_EQ(operand.row_stride_bytes(), 3 * 4 * 4);
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
  const RaggedOperand<kPlain> operand(view_, offset_view_);
  EXPECT_EQ(operand.row_idx(2, 1), 4u);
  EXPECT_EQ(operand.num_kv_rows(), 7);
  EXPECT_EQ((operand.populate<64, 1>(2, 2).rows[0]), 5u);
  EXPECT_EQ(word_at(operand.block_paged_ptr<1>(2, 3, 1, 2)), view_.offset({6, 1, 2}));
}

TEST_F(RaggedTest, EmptySequenceHasNoRows) {
  const RaggedOperand<kPlain> operand(view_, offset_view_);
  EXPECT_EQ(operand.cache_length(1), 0u);
  EXPECT_EQ(operand.row_idx(1, 0), kUnassignedRow);
  EXPECT_EQ(operand.block_paged_ptr<1>(1, 0, 0), nullptr);
}

TEST_F(RaggedTest, LengthCountsAllKeys) {
  const RaggedOperand<kPlain> operand(view_, offset_view_);
  EXPECT_EQ(num_keys(operand, 0, 3), 3);
  EXPECT_EQ(num_keys(operand, 2, 4), 4);
}

TEST_F(RaggedTest, TotalBoundsEveryLength) {
  const RaggedOperand<kPlain> operand(view_, offset_view_);
  EXPECT_EQ(operand.max_context_length(), 7);
}

TEST_F(RaggedTest, ScalePerTokenServesAllHeads) {
  const TensorView per_token = TensorView::contiguous(scales_.data(), DType::f32, {1, 7});
  const RaggedOperand<kRowScaled> operand(view_, offset_view_, per_token);
  EXPECT_EQ(operand.load_scale<1>(2, 1, 0, 3)[0], 4.0f);
  EXPECT_EQ(operand.load_scale<1>(2, 1, 1, 3)[0], 4.0f);
  EXPECT_EQ(operand.load_scale<1>(0, 3, 0, 0)[0], 0.0f);
}

TEST_F(RaggedTest, ScalePerHeadIsHeadMajor) {
  const TensorView per_head = TensorView::contiguous(scales_.data(), DType::f32, {2, 7});
  const RaggedOperand<kRowScaled> operand(view_, offset_view_, per_head);
  EXPECT_EQ(operand.load_scale<1>(2, 1, 1, 0)[0], 11.0f);
  EXPECT_EQ(operand.scale_matrix().num_heads, 2);
}

}  // namespace
}  // namespace quire
