// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/llama_stack.h"

#include <fmt/format.h>

#include "reference/flash_attention.h"

namespace quire::tools::demo {
namespace {

constexpr int kNumLayers = 3;

PagePoolOptions pool_options(const LlamaSize& size, std::int64_t num_pages, std::int64_t page_size,
                             std::int64_t num_layers, const RowFormat& row_format) {
  return {.num_pages = num_pages,
          .page_size = page_size,
          .num_layers = num_layers,
          .num_kv_heads = size.kv_heads,
          .is_mla = false,
          .row_format = row_format};
}

// Each head of q normalised by itself, as rms_norm_key does with the keys.
Tensor normalize_heads(const Tensor& q, const LlamaSize& size) {
  Matrix heads = to_matrix(q);
  const std::int64_t tokens = heads.rows;
  heads.rows = tokens * size.heads;
  heads.columns = size.head_dim;
  return to_tensor(rms_normalized(heads), DType::bf16, {tokens, size.heads, size.head_dim});
}

}  // namespace

LlamaStack::LlamaStack(TokenId vocabulary, std::int64_t num_pages, std::int64_t page_size,
                       std::uint64_t seed, const LlamaSize& size)
    : size_(size),
      vocabulary_(vocabulary, size_.hidden, seed),
      wide_pool_(
          pool_options(size_, num_pages, page_size, 2,
                       RowFormat::uniform(DType::bf16, static_cast<std::int32_t>(size_.head_dim)))),
      narrow_pool_(
          pool_options(size_, num_pages, page_size, 1,
                       RowFormat::scaled(DType::fp8_e4m3, static_cast<std::int32_t>(size_.head_dim),
                                         static_cast<std::int32_t>(size_.head_dim)))),
      freqs_cis_(make_freqs_cis(num_pages * page_size, size_.head_dim)),
      key_gamma_(Tensor::random(DType::bf16, {size_.head_dim}, "llama key gamma", seed, 0.1, 1.0)),
      value_gamma_(
          Tensor::random(DType::bf16, {size_.head_dim}, "llama value gamma", seed, 0.1, 1.0)) {
  const WeightFormat formats[kNumLayers] = {WeightFormat::dense, WeightFormat::int4,
                                            WeightFormat::fp8};
  for (int layer = 0; layer < kNumLayers; ++layer) {
    qkv_.emplace_back(formats[layer], size_.qkv_dim(), size_.hidden,
                      fmt::format("llama qkv {}", layer), seed);
    out_.emplace_back(formats[layer], size_.hidden, size_.q_dim(),
                      fmt::format("llama out {}", layer), seed);
  }
}

std::vector<std::string> LlamaStack::describe() const {
  return {
      fmt::format("hidden {}, {} query and {} key heads of {}, {} layers, {} pages of {} tokens",
                  size_.hidden, size_.heads, size_.kv_heads, size_.head_dim, kNumLayers,
                  wide_pool_.options().num_pages, wide_pool_.options().page_size),
      "layer 0: bf16 weights, key norm, rope, causal; bf16 cache",
      fmt::format("layer 1: int4 weights, value norm, rope, window of {}; bf16 cache",
                  size_.window),
      "layer 2: fp8 weights, no rope, shared prefix merged by LSE; fp8 cache with scales",
  };
}

void LlamaStack::poison(PageId page) {
  wide_pool_.poison(page);
  narrow_pool_.poison(page);
}

void LlamaStack::copy_pages(const Batch& batch, Referee& referee) const {
  copy_pages_in(wide_pool_, batch, referee);
  copy_pages_in(narrow_pool_, batch, referee);
}

std::vector<TokenId> LlamaStack::run(const Batch& batch, Referee& referee) {
  Matrix hidden = vocabulary_.embed(batch.tokens);
  add_to(hidden, project_out(run_full_layer(rms_normalized(hidden), batch, referee), 0, referee));
  add_to(hidden, project_out(run_window_layer(rms_normalized(hidden), batch, referee), 1, referee));
  add_to(hidden, project_out(run_prefix_layer(rms_normalized(hidden), batch, referee), 2, referee));
  require_finite(hidden, referee);
  return vocabulary_.choose(hidden, batch.last_rows);
}

Tensor LlamaStack::project_qkv(const Matrix& x, const ProjectionWeight& weight, const Batch& batch,
                               const PagedKVCache& cache, std::int64_t layer,
                               Referee& referee) const {
  const Tensor x16 = to_tensor(x, DType::bf16, {x.rows, x.columns});
  Tensor q(DType::bf16, {x.rows, size_.heads, size_.head_dim});
  referee.call(kFusedQkvMatmul, {.x = x16.view(),
                                 .row_offsets = batch.row_offsets.view(),
                                 .weight = weight.view(),
                                 .cache = cache,
                                 .layer = layer,
                                 .out = q.view({x.rows, size_.q_dim()})});
  return q;
}

Matrix LlamaStack::project_out(const Matrix& x, std::size_t layer, Referee& referee) const {
  const Tensor x16 = to_tensor(x, DType::bf16, {x.rows, x.columns});
  const Tensor out(DType::f32, {x.rows, size_.hidden});
  referee.call(kLinear, {.x = x16.view(), .weight = out_[layer].view(), .out = out.view()});
  return to_matrix(out);
}

Matrix LlamaStack::run_full_layer(const Matrix& x, const Batch& batch, Referee& referee) const {
  const PagedKVCache cache = wide_pool_.view(batch.page_table, batch.cache_lengths);
  const TensorView row_offsets = batch.row_offsets.view();
  const Tensor q = normalize_heads(project_qkv(x, qkv_[0], batch, cache, 0, referee), size_);
  referee.call(kRmsNormKey, {.cache = cache,
                             .layer = 0,
                             .side = KvSide::key,
                             .row_offsets = row_offsets,
                             .gamma = key_gamma_.view()});
  referee.call(kRope, {.q = q.view(),
                       .row_offsets = row_offsets,
                       .cache = cache,
                       .layer = 0,
                       .freqs_cis = freqs_cis_.view(),
                       .out = q.view()});
  const Tensor out(DType::bf16, {x.rows, size_.heads, size_.head_dim});
  referee.call(kFlashAttention, {.q = q.view(),
                                 .row_offsets = row_offsets,
                                 .cache = cache,
                                 .layer = 0,
                                 .mask = Mask::causal(),
                                 .out = out.view()});
  return to_matrix(out);
}

Matrix LlamaStack::run_window_layer(const Matrix& x, const Batch& batch, Referee& referee) const {
  const PagedKVCache cache = wide_pool_.view(batch.page_table, batch.cache_lengths);
  const TensorView row_offsets = batch.row_offsets.view();
  const Tensor q = project_qkv(x, qkv_[1], batch, cache, 1, referee);
  referee.call(kRmsNormValue, {.cache = cache,
                               .layer = 1,
                               .side = KvSide::value,
                               .row_offsets = row_offsets,
                               .gamma = value_gamma_.view()});
  const Tensor rotated(DType::bf16, {x.rows, size_.heads, size_.head_dim});
  referee.call(kRope, {.q = q.view(),
                       .row_offsets = row_offsets,
                       .cache = cache,
                       .layer = 1,
                       .freqs_cis = freqs_cis_.view(),
                       .out = rotated.view()});
  const Tensor out(DType::bf16, {x.rows, size_.heads, size_.head_dim});
  referee.call(kFlashAttention, {.q = rotated.view(),
                                 .row_offsets = row_offsets,
                                 .cache = cache,
                                 .layer = 1,
                                 .mask = Mask::causal() & Mask::sliding_window(size_.window),
                                 .out = out.view()});
  return to_matrix(out);
}

Matrix LlamaStack::run_prefix_layer(const Matrix& x, const Batch& batch, Referee& referee) const {
  const PagedKVCache cache = narrow_pool_.view(batch.page_table, batch.cache_lengths);
  const Tensor q = project_qkv(x, qkv_[2], batch, cache, 0, referee);
  if (batch.shares_prefix) return to_matrix(attend_in_two_parts(q, batch, referee));
  const Tensor out(DType::bf16, {x.rows, size_.heads, size_.head_dim});
  referee.call(kFlashAttention, {.q = q.view(),
                                 .row_offsets = batch.row_offsets.view(),
                                 .cache = cache,
                                 .layer = 0,
                                 .out = out.view()});
  return to_matrix(out);
}

// The shared pages once, each sequence's own pages once, joined by their LSEs. A sequence without
// shared pages sees no key in the first part: 0 and -inf.
Tensor LlamaStack::attend_in_two_parts(const Tensor& q, const Batch& batch,
                                       Referee& referee) const {
  const std::int64_t tokens = batch.num_tokens();
  const Tensor states(DType::f32, {2, tokens, size_.heads, size_.head_dim});
  const Tensor lses(DType::f32, {2, tokens, size_.heads});
  const Tensor* tables[] = {&batch.prefix_table, &batch.suffix_table};
  for (std::int64_t part = 0; part < 2; ++part) {
    float* state = states.view().as<float>() + part * tokens * size_.q_dim();
    float* lse = lses.view().as<float>() + part * tokens * size_.heads;
    referee.call(
        kFlashAttention,
        {.q = q.view(),
         .row_offsets = batch.row_offsets.view(),
         .cache = narrow_pool_.view(tables[part]->view(), batch.cache_lengths),
         .layer = 0,
         .out = TensorView::contiguous(state, DType::f32, {tokens, size_.heads, size_.head_dim},
                                       q.view().device),
         .lse = TensorView::contiguous(lse, DType::f32, {tokens, size_.heads}, q.view().device)});
  }
  Tensor merged(DType::f32, {tokens, size_.heads, size_.head_dim});
  referee.call(kMergeStates, {.states = states.view(), .lses = lses.view(), .out = merged.view()});
  require_one_pass(merged, q, batch, referee);
  return merged;
}

// Attention over all keys at once, straight from the oracle. Both are rounded to bf16: the parts
// were rounded to f32 before they were merged.
void LlamaStack::require_one_pass(const Tensor& merged, const Tensor& q, const Batch& batch,
                                  Referee& referee) const {
  const std::vector<std::int64_t> shape{batch.num_tokens(), size_.heads, size_.head_dim};
  const Tensor whole(DType::bf16, shape);
  reference::flash_attention({.q = q.view(),
                              .row_offsets = batch.row_offsets.view(),
                              .cache = narrow_pool_.view(batch.page_table, batch.cache_lengths),
                              .layer = 0,
                              .out = whole.view()});
  const Tensor rounded = to_tensor(to_matrix(merged), DType::bf16, shape);
  referee.require(kMergeStates.name,
                  compare_outputs("two parts merged", rounded.view(), whole.view(), std::nullopt,
                                  Closeness::tolerance));
}

}  // namespace quire::tools::demo
