// SPDX-License-Identifier: Apache-2.0
// Numbers worked out by hand. The weight formats are those of fused_qkv_matmul, and tested there.
#include "reference/linear.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/host_tensor.h"

namespace quire::reference {
namespace {

using test::HostTensor;

const HostTensor kX = HostTensor::of(DType::f32, {2, 3}, {1, 2, 3, -1, 0, 0.5});
const HostTensor kWeight =
    HostTensor::of(DType::f32, {4, 3}, {1, 0, 0, 1, 1, 1, 0, -2, 0.5, 4, 0, 0});

TEST(Linear, MultipliesRowsOfXWithRowsOfTheWeight) {
  const HostTensor out(DType::f32, {2, 4});
  reference::linear({.x = kX.view(), .weight = {.data = kWeight.view()}, .out = out.view()});
  EXPECT_EQ(out.values(), (std::vector<double>{1, 6, -2.5, 4, -1, -0.5, 0.25, -4}));
}

TEST(Linear, AddsTheBiasToEveryToken) {
  const HostTensor bias = HostTensor::of(DType::f32, {4}, {10, 20, 30, 40});
  const HostTensor out(DType::f32, {2, 4});
  reference::linear(
      {.x = kX.view(), .weight = {.data = kWeight.view()}, .bias = bias.view(), .out = out.view()});
  EXPECT_EQ(out.values(), (std::vector<double>{11, 26, 27.5, 44, 9, 19.5, 30.25, 36}));
}

TEST(Linear, WritesToRowsWithGapsAndNothingBetween) {
  const HostTensor storage = HostTensor::filled(DType::f32, {2, 6}, 7);
  TensorView out = storage.view();
  out.shape[1] = 4;
  reference::linear({.x = kX.view(), .weight = {.data = kWeight.view()}, .out = out});
  EXPECT_EQ(storage.values(), (std::vector<double>{1, 6, -2.5, 4, 7, 7, -1, -0.5, 0.25, -4, 7, 7}));
}

// 256 + 1 is no number of bf16: exact, the bias comes before the only rounding; naive, after the first.
TEST(Linear, RoundsOnceUnlessItIsNaive) {
  const HostTensor x = HostTensor::of(DType::bf16, {1, 2}, {256, 1});
  const HostTensor weight = HostTensor::of(DType::bf16, {1, 2}, {1, 1});
  const HostTensor bias = HostTensor::of(DType::f32, {1}, {1});
  const HostTensor out(DType::bf16, {1, 1});
  const LinearArgs args{
      .x = x.view(), .weight = {.data = weight.view()}, .bias = bias.view(), .out = out.view()};
  reference::linear(args);
  EXPECT_EQ(out.at({0, 0}), 258);
  reference::linear(args, Arithmetic::naive);
  EXPECT_EQ(out.at({0, 0}), 256);
}

TEST(Linear, ScalesOfAnFp8ProductMultiplyItsTerms) {
  const HostTensor x = HostTensor::of(DType::fp8_e4m3, {2, 2}, {1, 2, 3, 4});
  const HostTensor weight = HostTensor::of(DType::fp8_e4m3, {2, 2}, {1, 1, 2, 0});
  const HostTensor input_scale = HostTensor::of(DType::f32, {2, 1}, {10, 0.5});
  const HostTensor weight_scale = HostTensor::of(DType::f32, {2, 1}, {1, 3});
  const HostTensor out(DType::f32, {2, 2});
  reference::linear(
      {.x = x.view(),
       .weight = {.data = weight.view(), .format = WeightFormat::fp8, .scale = weight_scale.view()},
       .input_scale = input_scale.view(),
       .out = out.view()});
  EXPECT_EQ(out.values(), (std::vector<double>{30, 60, 3.5, 9}));
}

}  // namespace
}  // namespace quire::reference
