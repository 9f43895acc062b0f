// SPDX-License-Identifier: Apache-2.0
// The companions without a cache: merge_states, quantize_fp8, row_offsets.
#pragma once

#include "ops/sample.h"

namespace quire::test {

struct MergeStatesSample : Sample {
  MergeStatesSample() {
    op = "merge_states";
    args.states = arena.random(DType::f32, {2, kTokens, 3, 4});
    args.lses = arena.random(DType::f32, {2, kTokens, 3});
    args.out = arena.poisoned(DType::f32, {kTokens, 3, 4});
    args.lse = arena.poisoned(DType::f32, {kTokens, 3});
  }
  void run(const Context& context) override { merge_states(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    return {
        {"states", &args.states}, {"lses", &args.lses}, {"out", &args.out}, {"lse", &*args.lse}};
  }
  std::vector<std::string> written() const override { return {"out", "lse"}; }

  MergeStatesArgs args{};
};

struct QuantizeFp8Sample : Sample {
  QuantizeFp8Sample() {
    op = "quantize_fp8";
    args.x = arena.random(DType::bf16, {kTokens, 10});
    args.group_size = 4;
    args.out = arena.poisoned(DType::fp8_e4m3, {kTokens, 10});
    args.scale = arena.poisoned(DType::f32, {kTokens, 3});
  }
  void run(const Context& context) override { quantize_fp8(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    return {{"x", &args.x}, {"out", &args.out}, {"scale", &args.scale}};
  }
  std::vector<std::string> written() const override { return {"out", "scale"}; }

  QuantizeFp8Args args{};
};

struct RowOffsetsSample : Sample {
  RowOffsetsSample() {
    op = "row_offsets";
    args.row_offsets = make_row_offsets(arena);
    args.cache_lengths = arena.of(DType::u32, {kBatch}, {3, 0});
    args.out = arena.poisoned(DType::u32, {kBatch + 1});
  }
  void run(const Context& context) override { row_offsets(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    return {{"row_offsets", &args.row_offsets},
            {"cache_lengths", &args.cache_lengths},
            {"out", &args.out}};
  }
  std::vector<std::string> written() const override { return {"out"}; }

  RowOffsetsArgs args{};
};

}  // namespace quire::test
