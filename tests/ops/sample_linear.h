// SPDX-License-Identifier: Apache-2.0
// linear: five tokens and 24 columns.
#pragma once

#include "ops/sample.h"

namespace quire::test {

inline constexpr std::int64_t kLinearColumns = 24;

struct LinearBase : Sample {
  explicit LinearBase(std::int64_t hidden, DType x_dtype = DType::f32) {
    op = "linear";
    args.x = arena.random(x_dtype, {kTokens, hidden});
    args.out = arena.poisoned(DType::bf16, {kTokens, kLinearColumns});
  }
  void run(const Context& context) override { linear(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    std::vector<std::pair<std::string, TensorView*>> list{{"x", &args.x},
                                                          {"weight", &args.weight.data}};
    if (args.weight.scale) list.emplace_back("weight.scale", &*args.weight.scale);
    if (args.weight.zeros) list.emplace_back("weight.zeros", &*args.weight.zeros);
    if (args.bias) list.emplace_back("bias", &*args.bias);
    if (args.input_scale) list.emplace_back("input_scale", &*args.input_scale);
    list.emplace_back("out", &args.out);
    return list;
  }
  std::vector<std::string> written() const override { return {"out"}; }

  LinearArgs args{};
};

struct LinearSample : LinearBase {
  LinearSample() : LinearBase(12) {
    args.weight.data = arena.random(DType::bf16, {kLinearColumns, 12});
    args.bias = arena.random(DType::f32, {kLinearColumns});
  }
};

struct LinearFp8Sample : LinearBase {
  LinearFp8Sample() : LinearBase(130, DType::fp8_e4m3) {
    args.weight.format = WeightFormat::fp8;
    args.weight.data = arena.random(DType::fp8_e4m3, {kLinearColumns, 130});
    args.weight.scale = arena.filled(DType::f32, {1, 2}, 0.5);
    args.input_scale = arena.filled(DType::f32, {kTokens, 2}, 0.25);
  }
};

struct LinearGptqSample : LinearBase {
  LinearGptqSample() : LinearBase(64) {
    args.weight.format = WeightFormat::gptq;
    args.weight.group_size = 32;
    args.weight.data = arena.random(DType::i32, {8, kLinearColumns}, 2e9);
    args.weight.scale = arena.filled(DType::f16, {2, kLinearColumns}, 0.01);
    args.weight.zeros = arena.random(DType::i32, {2, kLinearColumns / 8}, 2e9);
  }
};

struct LinearGgufSample : LinearBase {
  LinearGgufSample() : LinearBase(32) {
    args.weight.format = WeightFormat::q5_0;
    args.weight.data = arena.filled(DType::u8, {kLinearColumns, 22}, 0x21);
    args.bias = arena.random(DType::bf16, {kLinearColumns});
  }
};

}  // namespace quire::test
