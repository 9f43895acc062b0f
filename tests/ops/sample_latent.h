// SPDX-License-Identifier: Apache-2.0
// The MLA ops: rows of latent 8 + rope 4, three heads of nope 6 + rope 4, values of 5.
#pragma once

#include "ops/sample.h"

namespace quire::test {

inline constexpr CacheForm kLatentForm{.kv = 1, .heads = 1, .row = 12};

inline void list_chunks(MlaPrefillChunks& chunks,
                        std::vector<std::pair<std::string, TensorView*>>& list) {
  list.emplace_back("chunks.buffer_lengths", &chunks.buffer_lengths);
  list.emplace_back("chunks.buffer_row_offsets", &chunks.buffer_row_offsets);
  list.emplace_back("chunks.cache_offsets", &chunks.cache_offsets);
}

inline MlaPrefillChunks make_chunks(Arena& arena) {
  MlaPrefillChunks chunks;
  chunks.buffer_row_offsets = arena.poisoned(DType::u32, {3, kBatch + 1});
  chunks.cache_offsets = arena.poisoned(DType::u32, {3, kBatch + 1});
  chunks.buffer_lengths = arena.poisoned(DType::i32, {3});
  chunks.buffer_tokens = 6;  // the 8 + 4 rows of whole pages need two chunks
  return chunks;
}

struct MlaPrefillPlanSample : Sample {
  MlaPrefillPlanSample() {
    op = "mla_prefill_plan";
    args.row_offsets = make_row_offsets(arena);
    args.cache = make_cache(arena, kLatentForm);
    args.layer = kLayer;
    args.chunks = make_chunks(arena);
  }
  void run(const Context& context) override { mla_prefill_plan(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    std::vector<std::pair<std::string, TensorView*>> list{{"row_offsets", &args.row_offsets}};
    list_cache(args.cache, "cache", list);
    list_chunks(args.chunks, list);
    return list;
  }
  std::vector<std::string> written() const override {
    return {"chunks.buffer_lengths", "chunks.buffer_row_offsets", "chunks.cache_offsets"};
  }

  MlaPrefillPlanArgs args{};
};

struct MlaPrefillSample : Sample {
  MlaPrefillSample() {
    op = "mla_prefill";
    args.q = arena.random(DType::bf16, {kTokens, 3, 10});
    args.row_offsets = make_row_offsets(arena);
    args.cache = make_cache(arena, kLatentForm);
    args.layer = kLayer;
    args.freqs_cis = arena.random(DType::f32, {8, 4});
    args.kv_norm_gamma = arena.random(DType::bf16, {8});
    args.kv_b_proj = arena.random(DType::bf16, {3 * (6 + 5), 8});
    args.scale = 0.3;
    args.alibi_slopes = arena.random(DType::f32, {3});
    args.sinks = arena.random(DType::f32, {3});
    args.out = arena.poisoned(DType::bf16, {kTokens, 3, 5});
    args.lse = arena.poisoned(DType::f32, {kTokens, 3});
    args.chunks = make_chunks(arena);
    MlaPrefillPlanArgs plan;
    plan.row_offsets = args.row_offsets;
    plan.cache = args.cache;
    plan.layer = kLayer;
    plan.chunks = args.chunks;
    mla_prefill_plan(plan);
  }
  void run(const Context& context) override { mla_prefill(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    std::vector<std::pair<std::string, TensorView*>> list{{"q", &args.q},
                                                          {"row_offsets", &args.row_offsets},
                                                          {"freqs_cis", &*args.freqs_cis},
                                                          {"kv_norm_gamma", &*args.kv_norm_gamma},
                                                          {"kv_b_proj", &args.kv_b_proj},
                                                          {"alibi_slopes", &*args.alibi_slopes},
                                                          {"sinks", &*args.sinks},
                                                          {"out", &args.out},
                                                          {"lse", &*args.lse}};
    if (args.kv) list.emplace_back("kv", &*args.kv);
    if (args.kv_b_proj_scale) list.emplace_back("kv_b_proj_scale", &*args.kv_b_proj_scale);
    list_cache(args.cache, "cache", list);
    list_chunks(args.chunks, list);
    return list;
  }
  std::vector<std::string> written() const override { return {"q", "cache.blocks", "out", "lse"}; }

  MlaPrefillArgs args{};
};

// fp8 weights and the raw rows as an argument.
struct MlaPrefillFp8Sample : MlaPrefillSample {
  MlaPrefillFp8Sample() {
    args.kv_b_proj = arena.random(DType::fp8_e4m3, {3 * (6 + 5), 8});
    args.kv_b_proj_scale = arena.filled(DType::f32, {1, 1}, 0.5);
    args.kv = arena.random(DType::bf16, {kTokens, 12});
  }
};

struct MlaDecodeSample : Sample {
  MlaDecodeSample() {
    op = "mla_decode";
    args.q = arena.random(DType::bf16, {kTokens, 3, 10});
    args.row_offsets = make_row_offsets(arena);
    args.cache = make_cache(arena, kLatentForm);
    args.layer = kLayer;
    args.freqs_cis = arena.random(DType::f32, {8, 4});
    args.kv_norm_gamma = arena.random(DType::bf16, {8});
    args.w_uk = arena.random(DType::fp8_e4m3, {3, 8, 6});
    args.w_uk_scale = arena.filled(DType::f32, {3, 1, 1}, 0.5);
    args.w_uv = arena.random(DType::fp8_e4m3, {3, 5, 8});
    args.w_uv_scale = arena.filled(DType::f32, {3, 1, 1}, 0.5);
    args.scale = 0.3;
    args.sinks = arena.random(DType::f32, {3});
    args.out = arena.poisoned(DType::bf16, {kTokens, 3, 5});
    args.lse = arena.poisoned(DType::f32, {kTokens, 3});
  }
  void run(const Context& context) override { mla_decode(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    std::vector<std::pair<std::string, TensorView*>> list{
        {"q", &args.q}, {"row_offsets", &args.row_offsets}, {"out", &args.out}};
    list_cache(args.cache, "cache", list);
    if (args.freqs_cis) list.emplace_back("freqs_cis", &*args.freqs_cis);
    if (args.kv_norm_gamma) list.emplace_back("kv_norm_gamma", &*args.kv_norm_gamma);
    if (args.w_uk) list.emplace_back("w_uk", &*args.w_uk);
    if (args.w_uk_scale) list.emplace_back("w_uk_scale", &*args.w_uk_scale);
    if (args.w_uv) list.emplace_back("w_uv", &*args.w_uv);
    if (args.w_uv_scale) list.emplace_back("w_uv_scale", &*args.w_uv_scale);
    if (args.sinks) list.emplace_back("sinks", &*args.sinks);
    if (args.lse) list.emplace_back("lse", &*args.lse);
    return list;
  }
  std::vector<std::string> written() const override {
    if (!args.freqs_cis) return {"out"};
    return {"cache.blocks", "out", "lse"};
  }

  MlaDecodeArgs args{};
};

// q is absorbed and the rows are finished: the cache is only read.
struct MlaDecodeAbsorbedSample : MlaDecodeSample {
  MlaDecodeAbsorbedSample() {
    args.q = arena.random(DType::bf16, {kTokens, 3, 12});
    args.out = arena.poisoned(DType::bf16, {kTokens, 3, 8});
    args.freqs_cis = args.kv_norm_gamma = args.w_uk = args.w_uk_scale = args.w_uv =
        args.w_uv_scale = args.sinks = args.lse = std::nullopt;
  }
};

struct MlaIndexerSample : Sample {
  MlaIndexerSample() {
    op = "mla_indexer";
    args.q = arena.random(DType::fp8_e4m3, {kTokens, 2, 8});
    args.q_scale = arena.random(DType::f32, {kTokens, 2});
    args.row_offsets = make_row_offsets(arena);
    args.cache =
        make_cache(arena, {.dtype = DType::fp8_e4m3, .kv = 1, .heads = 1, .row = 8, .slots = 1});
    args.layer = kLayer;
    args.top_k = 2;
    args.out = arena.filled(DType::i32, {kTokens, 2}, 1234);
    args.scores = arena.poisoned(DType::f32, {kTokens, 2});
  }
  void run(const Context& context) override { mla_indexer(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    std::vector<std::pair<std::string, TensorView*>> list{{"q", &args.q},
                                                          {"q_scale", &args.q_scale},
                                                          {"row_offsets", &args.row_offsets},
                                                          {"out", &args.out},
                                                          {"scores", &*args.scores}};
    list_cache(args.cache, "cache", list);
    return list;
  }
  std::vector<std::string> written() const override { return {"out", "scores"}; }

  MlaIndexerArgs args{};
};

struct SparseMlaSample : Sample {
  SparseMlaSample() {
    op = "sparse_mla";
    args.q = arena.random(DType::bf16, {kTokens, 3, 12});
    args.row_offsets = make_row_offsets(arena);
    args.cache = make_cache(arena, kLatentForm);
    args.layer = kLayer;
    args.indices = arena.of(DType::i32, {kTokens, 2}, {0, 3, 1, 4, 0, -1, 0, 1, 2, 0});
    args.topk_lengths = arena.filled(DType::i32, {kTokens}, 2);
    args.scale = 0.3;
    args.sinks = arena.random(DType::f32, {3});
    SparseExtra extra;
    extra.cache = make_cache(arena, kLatentForm);
    extra.indices = arena.filled(DType::i32, {kTokens, 1}, 0);
    extra.lengths = arena.filled(DType::i32, {kTokens}, 1);
    args.extra = extra;
    args.out = arena.poisoned(DType::bf16, {kTokens, 3, 8});
    args.lse = arena.poisoned(DType::f32, {kTokens, 3});
  }
  void run(const Context& context) override { sparse_mla(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    std::vector<std::pair<std::string, TensorView*>> list{{"q", &args.q},
                                                          {"row_offsets", &args.row_offsets},
                                                          {"indices", &args.indices},
                                                          {"topk_lengths", &*args.topk_lengths},
                                                          {"sinks", &*args.sinks},
                                                          {"extra.indices", &args.extra->indices},
                                                          {"extra.lengths", &*args.extra->lengths},
                                                          {"out", &args.out},
                                                          {"lse", &*args.lse}};
    list_cache(args.cache, "cache", list);
    list_cache(args.extra->cache, "extra.cache", list);
    return list;
  }
  std::vector<std::string> written() const override { return {"out", "lse"}; }

  SparseMlaArgs args{};
};

}  // namespace quire::test
