// SPDX-License-Identifier: Apache-2.0
// The ops that prepare the indexer's rows: store_index_keys, quantize_index_queries.
#pragma once

#include "ops/sample.h"

namespace quire::test {

inline constexpr CacheForm kIndexForm{
    .dtype = DType::fp8_e4m3, .kv = 1, .heads = 1, .row = 8, .slots = 1};

struct StoreIndexKeysSample : Sample {
  StoreIndexKeysSample() {
    op = "store_index_keys";
    args.x = arena.random(DType::bf16, {kTokens, 8});
    args.row_offsets = make_row_offsets(arena);
    args.cache = make_cache(arena, kIndexForm);
    args.layer = kLayer;
    args.norm_weight = arena.random(DType::f32, {8});
    args.norm_bias = arena.random(DType::bf16, {8});
    args.freqs_cis = arena.random(DType::f32, {8, 4});
    args.hadamard = true;
  }
  void run(const Context& context) override { store_index_keys(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    std::vector<std::pair<std::string, TensorView*>> list{{"x", &args.x},
                                                          {"row_offsets", &args.row_offsets},
                                                          {"norm_weight", &*args.norm_weight},
                                                          {"norm_bias", &*args.norm_bias},
                                                          {"freqs_cis", &*args.freqs_cis}};
    list_cache(args.cache, "cache", list);
    return list;
  }
  std::vector<std::string> written() const override { return {"cache.blocks", "cache.scales"}; }

  StoreIndexKeysArgs args{};
};

struct QuantizeIndexQueriesSample : Sample {
  QuantizeIndexQueriesSample() {
    op = "quantize_index_queries";
    args.q = arena.random(DType::bf16, {kTokens, 2, 8});
    args.row_offsets = make_row_offsets(arena);
    args.cache = make_cache(arena, kIndexForm);
    args.weights = arena.random(DType::f32, {kTokens, 2});
    args.factor = 0.25;
    args.freqs_cis = arena.random(DType::f32, {8, 4});
    args.hadamard = true;
    args.out = arena.poisoned(DType::fp8_e4m3, {kTokens, 2, 8});
    args.q_scale = arena.poisoned(DType::f32, {kTokens, 2});
  }
  void run(const Context& context) override { quantize_index_queries(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    std::vector<std::pair<std::string, TensorView*>> list{{"q", &args.q},
                                                          {"row_offsets", &args.row_offsets},
                                                          {"weights", &*args.weights},
                                                          {"freqs_cis", &*args.freqs_cis},
                                                          {"out", &args.out},
                                                          {"q_scale", &args.q_scale}};
    list_cache(args.cache, "cache", list);
    return list;
  }
  std::vector<std::string> written() const override { return {"out", "q_scale"}; }

  QuantizeIndexQueriesArgs args{};
};

}  // namespace quire::test
