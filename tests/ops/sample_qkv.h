// SPDX-License-Identifier: Apache-2.0
// fused_qkv_matmul: q_dim 16, two KV heads of 8, so N = 16 + 2 · 16 = 48; MLA N = 16 + 12.
#pragma once

#include "ops/sample.h"

namespace quire::test {

inline constexpr std::int64_t kQDim = 16;
inline constexpr std::int64_t kQkvRows = 48;

struct FusedQkvBase : Sample {
  FusedQkvBase(std::int64_t hidden, const CacheForm& form, DType x_dtype = DType::f32) {
    op = "fused_qkv_matmul";
    args.x = arena.random(x_dtype, {kTokens, hidden});
    args.row_offsets = make_row_offsets(arena);
    args.cache = make_cache(arena, form);
    args.layer = kLayer;
    args.out = arena.poisoned(DType::bf16, {kTokens, kQDim});
  }
  void run(const Context& context) override { fused_qkv_matmul(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    std::vector<std::pair<std::string, TensorView*>> list{
        {"x", &args.x}, {"row_offsets", &args.row_offsets}, {"weight", &args.weight.data}};
    list_cache(args.cache, "cache", list);
    if (args.weight.scale) list.emplace_back("weight.scale", &*args.weight.scale);
    if (args.weight.zeros) list.emplace_back("weight.zeros", &*args.weight.zeros);
    if (args.weight.perm) list.emplace_back("weight.perm", &*args.weight.perm);
    if (args.bias) list.emplace_back("bias", &*args.bias);
    if (args.input_scale) list.emplace_back("input_scale", &*args.input_scale);
    list.emplace_back("out", &args.out);
    return list;
  }
  std::vector<std::string> written() const override { return {"out", "cache.blocks"}; }

  FusedQkvArgs args{};
};

struct FusedQkvSample : FusedQkvBase {
  FusedQkvSample() : FusedQkvBase(12, {}) {
    args.weight.data = arena.random(DType::bf16, {kQkvRows, 12});
    args.bias = arena.random(DType::f32, {kQkvRows});
  }
};

struct FusedQkvFp8Sample : FusedQkvBase {
  FusedQkvFp8Sample() : FusedQkvBase(130, {.dtype = DType::fp8_e4m3, .slots = 2}, DType::fp8_e4m3) {
    args.weight.format = WeightFormat::fp8;
    args.weight.data = arena.random(DType::fp8_e4m3, {kQkvRows, 130});
    args.weight.scale = arena.filled(DType::f32, {1, 2}, 0.5);
    args.input_scale = arena.filled(DType::f32, {kTokens, 2}, 0.25);
  }
  std::vector<std::string> written() const override {
    return {"out", "cache.blocks", "cache.scales"};
  }
};

struct FusedQkvInt4Sample : FusedQkvBase {
  FusedQkvInt4Sample() : FusedQkvBase(64, {}) {
    args.weight.format = WeightFormat::int4;
    args.weight.group_size = 32;
    args.weight.data = arena.random(DType::u4, {kQkvRows, 64}, 15.0);
    args.weight.scale = arena.filled(DType::bf16, {kQkvRows, 2}, 0.01);
    args.weight.zeros = arena.filled(DType::u8, {kQkvRows, 2}, 7);
    std::vector<double> reversed;
    for (int k = 63; k >= 0; --k) reversed.push_back(k);
    args.weight.perm = arena.of(DType::i32, {64}, reversed);
  }
};

struct FusedQkvGptqSample : FusedQkvBase {
  FusedQkvGptqSample() : FusedQkvBase(64, {}) {
    args.weight.format = WeightFormat::gptq;
    args.weight.group_size = 32;
    args.weight.data = arena.random(DType::i32, {8, kQkvRows}, 2e9);
    args.weight.scale = arena.filled(DType::f16, {2, kQkvRows}, 0.01);
    args.weight.zeros = arena.random(DType::i32, {2, kQkvRows / 8}, 2e9);
  }
};

struct FusedQkvAwqSample : FusedQkvBase {
  FusedQkvAwqSample() : FusedQkvBase(64, {}) {
    args.weight.format = WeightFormat::awq;
    args.weight.group_size = 64;
    args.weight.data = arena.random(DType::i32, {64, kQkvRows / 8}, 2e9);
    args.weight.scale = arena.filled(DType::f16, {1, kQkvRows}, 0.01);
  }
};

struct FusedQkvGgufSample : FusedQkvBase {
  FusedQkvGgufSample() : FusedQkvBase(32, {}) {
    args.weight.format = WeightFormat::q4_0;
    args.weight.data = arena.filled(DType::u8, {kQkvRows, 18}, 0x21);
  }
};

struct FusedQkvMlaSample : FusedQkvBase {
  FusedQkvMlaSample() : FusedQkvBase(12, {.kv = 1, .heads = 1, .row = 12}) {
    args.weight.data = arena.random(DType::f16, {kQDim + 12, 12});
  }
};

}  // namespace quire::test
