// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/sample.h"

namespace quire::test {

// Two tokens to a row, with overlap: sequence 0 gets its second row, sequence 1 its first.
struct CompressKeysSample : Sample {
  CompressKeysSample() {
    op = "compress_keys";
    args.kv = arena.random(DType::bf16, {kTokens, 16});
    args.gate = arena.random(DType::bf16, {kTokens, 16});
    args.bias = arena.random(DType::f32, {2, 16});
    args.row_offsets = make_row_offsets(arena);
    args.cache = make_cache(arena, {.dtype = DType::bf16, .kv = 1, .heads = 1});
    args.layer = kLayer;
    args.gamma = arena.random(DType::f32, {8});
    args.freqs_cis = arena.random(DType::f32, {4, 6});
    args.state = arena.random(DType::f32, {3, 5, 2, 16});
    args.state_slots = arena.of(DType::u32, {kBatch}, {2, 0});
  }
  void run(const Context& context) override { compress_keys(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    std::vector<std::pair<std::string, TensorView*>> list{
        {"kv", &args.kv},       {"gate", &args.gate},           {"bias", &args.bias},
        {"gamma", &args.gamma}, {"freqs_cis", &args.freqs_cis}, {"row_offsets", &args.row_offsets},
        {"state", &args.state}};
    list_cache(args.cache, "cache", list);
    if (args.state_slots) list.emplace_back("state_slots", &*args.state_slots);
    return list;
  }
  std::vector<std::string> written() const override { return {"cache.blocks", "state"}; }

  CompressKeysArgs args{};
};

}  // namespace quire::test
