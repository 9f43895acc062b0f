// SPDX-License-Identifier: Apache-2.0
#include "quire/tensor_view.h"

#include <gtest/gtest.h>

#include <vector>

#include "quire/error.h"

namespace quire {
namespace {

TEST(TensorView, ContiguousStridesAreRowMajor) {
  const TensorView view = TensorView::contiguous(nullptr, DType::bf16, {2, 3, 4});
  EXPECT_EQ(view.strides[0], 12);
  EXPECT_EQ(view.strides[1], 4);
  EXPECT_EQ(view.strides[2], 1);
  EXPECT_EQ(view.numel(), 24);
  EXPECT_TRUE(view.is_contiguous());
}

TEST(TensorView, SizesPastThirtyTwoBitsKeepTheirValue) {
  const std::int64_t large = std::int64_t{1} << 33;
  const TensorView view = TensorView::contiguous(nullptr, DType::f32, {4, large});
  EXPECT_EQ(view.strides[0], large);
  EXPECT_EQ(view.numel(), 4 * large);
  EXPECT_EQ(view.offset({3, large - 1}), 4 * large - 1);
}

TEST(TensorView, TransposedViewIsNotContiguousAndStillLoads) {
  std::vector<float> data{0, 1, 2, 3, 4, 5};
  TensorView view = TensorView::contiguous(data.data(), DType::f32, {2, 3});
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.strides[0], view.strides[1]);
  EXPECT_FALSE(view.is_contiguous());
  EXPECT_FALSE(view.has_dense_rows());
  EXPECT_EQ(view.load({2, 1}), 5);
  EXPECT_EQ(view.load({0, 1}), 3);
}

TEST(TensorView, SizeOneDimensionsMayHaveAnyStride) {
  TensorView view = TensorView::contiguous(nullptr, DType::f32, {1, 3, 1});
  view.strides[0] = 77;
  view.strides[2] = 5;
  EXPECT_TRUE(view.is_contiguous());
  EXPECT_TRUE(view.has_dense_rows());
}

TEST(TensorView, BroadcastStrideReadsTheSameElement) {
  std::vector<float> data{7};
  TensorView view = TensorView::contiguous(data.data(), DType::f32, {4, 4});
  view.strides = {0, 0};
  EXPECT_EQ(view.load({3, 2}), 7);
  EXPECT_FALSE(view.is_contiguous());
}

TEST(TensorView, StoreWritesThroughStrides) {
  std::vector<float> data(6, 0);
  TensorView view = TensorView::contiguous(data.data(), DType::f32, {3, 2});
  view.store({2, 1}, 9);
  EXPECT_EQ(data[5], 9);
}

TEST(TensorView, DescribeNamesTypeAndShape) {
  EXPECT_EQ(TensorView::contiguous(nullptr, DType::bf16, {4096, 6144}).describe(),
            "bf16[4096, 6144]");
  EXPECT_EQ(TensorView{}.describe(), "f32[]");
}

TEST(TensorView, RankAboveTheLimitIsAnErrorNotAnOverrun) {
  EXPECT_THROW(TensorView::contiguous(nullptr, DType::f32, {1, 1, 1, 1, 1, 1, 1}), Error);
}

TEST(TensorView, DescribesARankThatCannotBe) {
  TensorView view = TensorView::contiguous(nullptr, DType::bf16, {4096, 6144});
  view.rank = 1 << 30;
  EXPECT_EQ(view.describe(), "bf16 of rank 1073741824");
  view.rank = -1;
  EXPECT_EQ(view.describe(), "bf16 of rank -1");
}

TEST(Device, PrintsKindAndIndex) {
  EXPECT_EQ(to_string(Device{}), "cpu");
  EXPECT_EQ(to_string(Device{DeviceKind::cuda, 3}), "cuda:3");
}

TEST(Error, MessageNamesOpArgumentExpectedAndActual) {
  const Error error(ErrorCode::invalid_value, "fused_qkv_matmul", "weight", "bf16[6144, 4096]",
                    "bf16[4096, 6144]");
  EXPECT_STREQ(error.what(),
               "fused_qkv_matmul: 'weight' must be bf16[6144, 4096], got bf16[4096, 6144]");
  EXPECT_EQ(error.argument(), "weight");
  EXPECT_EQ(error.code(), ErrorCode::invalid_value);
}

}  // namespace
}  // namespace quire
