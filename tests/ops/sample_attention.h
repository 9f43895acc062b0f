// SPDX-License-Identifier: Apache-2.0
// flash_attention: four query heads over two KV heads of 8.
#pragma once

#include "ops/sample.h"
#include "support/host_tensor.h"

namespace quire::test {

struct FlashAttentionBase : Sample {
  explicit FlashAttentionBase(const CacheForm& form) {
    op = "flash_attention";
    args.q = arena.random(DType::bf16, {kTokens, 4, 8});
    args.row_offsets = make_row_offsets(arena);
    args.cache = make_cache(arena, form);
    args.layer = kLayer;
    args.alibi_slopes = arena.random(DType::f32, {4});
    args.sinks = arena.random(DType::f32, {4});
    args.out = arena.poisoned(DType::bf16, {kTokens, 4, 8});
    args.lse = arena.poisoned(DType::f32, {kTokens, 4});
  }
  void run(const Context& context) override { flash_attention(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    std::vector<std::pair<std::string, TensorView*>> list{{"q", &args.q},
                                                          {"row_offsets", &args.row_offsets}};
    list_cache(args.cache, "cache", list);
    if (args.alibi_slopes) list.emplace_back("alibi_slopes", &*args.alibi_slopes);
    list.emplace_back("sinks", &*args.sinks);
    list.emplace_back("out", &args.out);
    list.emplace_back("lse", &*args.lse);
    return list;
  }
  std::vector<std::string> written() const override { return {"out", "lse"}; }

  FlashAttentionArgs args{};
};

struct FlashAttentionSample : FlashAttentionBase {
  FlashAttentionSample() : FlashAttentionBase({}) {}
};

// An int8 cache with scales on pages of their own.
struct FlashAttentionInt8Sample : FlashAttentionBase {
  FlashAttentionInt8Sample() : FlashAttentionBase({.dtype = DType::i8, .slots = 1}) {
    args.cache.scales_page_table = arena.of(DType::u32, {kBatch, 3}, {0, 5, 6, 3, 99, 99});
  }
};

// A pass over some of the keys.
struct FlashAttentionKeysSample : FlashAttentionBase {
  FlashAttentionKeysSample() : FlashAttentionBase({}) {
    args.key_lengths = arena.of(DType::u32, {kBatch}, {3, 0});
  }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    auto list = FlashAttentionBase::tensors();
    list.emplace_back("key_lengths", &*args.key_lengths);
    return list;
  }
};

// Lists of blocks for every token and KV head.
struct FlashAttentionBlocksSample : FlashAttentionBase {
  FlashAttentionBlocksSample() : FlashAttentionBase({}) {
    args.key_blocks = arena.of(DType::i32, {kTokens, 2, 2},
                               {0, -1, 1, 0, 2, 1, -1, -1, 0, 1, 1, 9, 0, 1, 7, 0, -5, 0, 0, 1});
    args.key_block_size = 2;
    args.alibi_slopes.reset();
  }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    auto list = FlashAttentionBase::tensors();
    list.emplace_back("key_blocks", &*args.key_blocks);
    return list;
  }
};

// Every token brings its own interval of keys: two columns of one tensor. The mask is made from `begin` and `end` at
// each call.
struct FlashAttentionIntervalsSample : FlashAttentionBase {
  FlashAttentionIntervalsSample() : FlashAttentionBase({}) {
    const TensorView bounds = arena.of(DType::i32, {kTokens, 2}, {0, 3, 5, 2, -7, 900, 1, 1, 2, 4});
    begin = column(bounds, 0);
    end = column(bounds, 1);
  }
  void run(const Context& context) override { flash_attention(with_mask(), context); }
  Plan supports(const Context& context) override { return quire::supports(with_mask(), context); }
  Call prepare(const Context& context) override {
    return [this, call = prepared_call(with_mask(), context)](const Context& at) {
      with_mask();
      call(at);
    };
  }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    auto list = FlashAttentionBase::tensors();
    list.emplace_back("mask.begin", &begin);
    list.emplace_back("mask.end", &end);
    return list;
  }

  TensorView begin{};
  TensorView end{};

 private:
  const FlashAttentionArgs& with_mask() {
    args.mask = Mask::causal() & Mask::key_intervals(begin, end);
    return args;
  }
};

// Without a cache: sequence 0 has 5 keys, sequence 1 has 2 and more queries than that. V is narrower than K.
struct FlashAttentionRaggedSample : FlashAttentionBase {
  FlashAttentionRaggedSample() : FlashAttentionBase({}) {
    args.cache = {};
    args.layer = 0;
    args.k = arena.random(DType::bf16, {7, 2, 8});
    args.v = arena.random(DType::bf16, {7, 2, 6});
    args.key_offsets = arena.of(DType::u32, {kBatch + 1}, {0, 5, 7});
    args.out = arena.poisoned(DType::bf16, {kTokens, 4, 6});
  }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    return {{"q", &args.q},
            {"row_offsets", &args.row_offsets},
            {"k", &*args.k},
            {"v", &*args.v},
            {"key_offsets", &*args.key_offsets},
            {"alibi_slopes", &*args.alibi_slopes},
            {"sinks", &*args.sinks},
            {"out", &args.out},
            {"lse", &*args.lse}};
  }
};

}  // namespace quire::test
