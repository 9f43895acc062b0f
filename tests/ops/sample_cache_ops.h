// SPDX-License-Identifier: Apache-2.0
// The companions that work on cache rows: rope, the two norms, store, store_scales,
// remap_sparse_indices; and copy_pages.
#pragma once

#include "ops/sample.h"

namespace quire::test {

struct RopeSample : Sample {
  RopeSample() {
    op = "rope";
    args.q = arena.random(DType::bf16, {kTokens, 4, 8});
    args.row_offsets = make_row_offsets(arena);
    args.cache = make_cache(arena, {});
    args.layer = kLayer;
    args.freqs_cis = arena.random(DType::f32, {8, 6});
    args.out = arena.poisoned(DType::bf16, {kTokens, 4, 8});
  }
  void run(const Context& context) override { rope(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    std::vector<std::pair<std::string, TensorView*>> list{{"q", &args.q},
                                                          {"row_offsets", &args.row_offsets},
                                                          {"freqs_cis", &args.freqs_cis},
                                                          {"out", &args.out}};
    list_cache(args.cache, "cache", list);
    if (args.position_ids) list.emplace_back("position_ids", &*args.position_ids);
    if (args.q_gamma) list.emplace_back("q_gamma", &*args.q_gamma);
    if (args.key_gamma) list.emplace_back("key_gamma", &*args.key_gamma);
    return list;
  }
  std::vector<std::string> written() const override { return {"out", "cache.blocks"}; }

  RopeArgs args{};
};

struct RopePositionsSample : RopeSample {
  RopePositionsSample() {
    args.position_ids = arena.of(DType::u32, {2, kTokens}, {0, 1, 2, 3, 4, 7, 6, 5, 4, 3});
    args.mrope_sections = {1, 2};
  }
};

struct RopeNormedSample : RopeSample {
  RopeNormedSample() {
    args.q_gamma = arena.random(DType::bf16, {8});
    args.key_gamma = arena.random(DType::f32, {7});
  }
};

struct RmsNormSample : Sample {
  explicit RmsNormSample(KvSide side) {
    op = side == KvSide::key ? "rms_norm_key" : "rms_norm_value";
    args.cache = make_cache(arena, {});
    args.layer = kLayer;
    args.side = side;
    args.row_offsets = make_row_offsets(arena);
    args.gamma = arena.random(DType::bf16, {6});
  }
  void run(const Context& context) override {
    args.side == KvSide::key ? rms_norm_key(args, context) : rms_norm_value(args, context);
  }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    std::vector<std::pair<std::string, TensorView*>> list{{"row_offsets", &args.row_offsets},
                                                          {"gamma", &args.gamma}};
    list_cache(args.cache, "cache", list);
    return list;
  }
  std::vector<std::string> written() const override { return {"cache.blocks"}; }

  RmsNormArgs args{};
};

struct RmsNormKeySample : RmsNormSample {
  RmsNormKeySample() : RmsNormSample(KvSide::key) {}
};

struct RmsNormValueSample : RmsNormSample {
  RmsNormValueSample() : RmsNormSample(KvSide::value) {}
};

// Into an fp8 cache with one scale for four columns.
struct StoreSample : Sample {
  StoreSample() {
    op = "store";
    args.x = arena.random(DType::f32, {kTokens, 2, 8});
    args.row_offsets = make_row_offsets(arena);
    args.cache = make_cache(arena, {.dtype = DType::fp8_e4m3, .slots = 2});
    args.layer = kLayer;
  }
  void run(const Context& context) override { store(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    std::vector<std::pair<std::string, TensorView*>> list{{"x", &args.x},
                                                          {"row_offsets", &args.row_offsets}};
    list_cache(args.cache, "cache", list);
    return list;
  }
  std::vector<std::string> written() const override { return {"cache.blocks", "cache.scales"}; }

  StoreArgs args{};
};

// K and V of a bf16 cache that is a pool alone; token 1 is skipped.
struct StoreSlotsSample : Sample {
  StoreSlotsSample() {
    op = "store";
    args.x = arena.random(DType::f32, {kTokens, 2, 8});
    args.cache.blocks = make_cache(arena, {.dtype = DType::bf16}).blocks;
    args.layer = kLayer;
    args.value = arena.random(DType::f32, {kTokens, 2, 8});
    args.slots = arena.of(DType::i64, {kTokens}, {3, -1, 20, 0, 8});
  }
  void run(const Context& context) override { store(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    std::vector<std::pair<std::string, TensorView*>> list{
        {"x", &args.x}, {"value", &*args.value}, {"slots", &*args.slots}};
    list_cache(args.cache, "cache", list);
    return list;
  }
  std::vector<std::string> written() const override { return {"cache.blocks"}; }

  StoreArgs args{};
};

struct StoreScalesSample : Sample {
  StoreScalesSample() {
    op = "store_scales";
    args.scales = arena.random(DType::bf16, {kTokens, 2, 2});
    args.row_offsets = make_row_offsets(arena);
    args.cache = make_cache(arena, {.dtype = DType::fp8_e4m3, .slots = 2});
    args.layer = kLayer;
    args.side = KvSide::value;
  }
  void run(const Context& context) override { store_scales(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    std::vector<std::pair<std::string, TensorView*>> list{{"scales", &args.scales},
                                                          {"row_offsets", &args.row_offsets}};
    list_cache(args.cache, "cache", list);
    return list;
  }
  std::vector<std::string> written() const override { return {"cache.scales"}; }

  StoreScalesArgs args{};
};

struct CopyPagesSample : Sample {
  CopyPagesSample() {
    op = "copy_pages";
    args.cache = make_cache(arena, {.dtype = DType::fp8_e4m3, .slots = 2});
    // Scales that differ from page to page, or a copy of them would not show.
    TensorView& scales = *args.cache.scales;
    scales = arena.random(DType::f32, {scales.shape.begin(), scales.shape.begin() + scales.rank});
    args.pairs = arena.of(DType::u32, {3, 2}, {4, 0, 1, 5, 6, 2});  // the last one is dropped
  }
  void run(const Context& context) override { copy_pages(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    std::vector<std::pair<std::string, TensorView*>> list{{"pairs", &args.pairs}};
    list_cache(args.cache, "cache", list);
    return list;
  }
  std::vector<std::string> written() const override { return {"cache.blocks", "cache.scales"}; }

  CopyPagesArgs args{};
};

struct RemapSparseIndicesSample : Sample {
  RemapSparseIndicesSample() {
    op = "remap_sparse_indices";
    args.indices = arena.of(DType::i32, {kTokens, 2}, {0, 4, -1, 3, 0, 1, 2, -7, 0, 2});
    args.row_offsets = make_row_offsets(arena);
    args.cache = make_cache(arena, {.kv = 1, .heads = 1, .row = 12});
    args.out = arena.poisoned(DType::i32, {kTokens, 2});
  }
  void run(const Context& context) override { remap_sparse_indices(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    std::vector<std::pair<std::string, TensorView*>> list{
        {"indices", &args.indices}, {"row_offsets", &args.row_offsets}, {"out", &args.out}};
    list_cache(args.cache, "cache", list);
    return list;
  }
  std::vector<std::string> written() const override { return {"out"}; }

  RemapSparseIndicesArgs args{};
};

}  // namespace quire::test
