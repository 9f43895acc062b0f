// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/deepseek_stack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace quire::tools::demo {
namespace {

// Small, so that long prompts need several chunks, whose parts are merged.
constexpr std::int64_t kBufferTokens = 64;

double attention_scale(const LatentSize& size) {
  return 1.0 / std::sqrt(static_cast<double>(size.q_head()));
}

double spread(std::int64_t columns) {
  return 1.0 / std::sqrt(static_cast<double>(columns));
}

}  // namespace

DeepseekStack::DeepseekStack(TokenId vocabulary, std::int64_t num_pages, std::int64_t page_size,
                             std::uint64_t seed, const LatentSize& size)
    : size_(size),
      vocabulary_(vocabulary, size_.hidden, seed),
      pool_(
          {.num_pages = num_pages,
           .page_size = page_size,
           .num_layers = 1,
           .num_kv_heads = 1,
           .is_mla = true,
           .row_format = RowFormat::uniform(DType::bf16, static_cast<std::int32_t>(size_.row()))}),
      freqs_cis_(make_freqs_cis(num_pages * page_size, size_.rope)),
      kv_norm_gamma_(Tensor::random(DType::bf16, {size_.latent}, "latent gamma", seed, 0.1, 1.0)),
      qkv_(WeightFormat::dense, size_.q_rank + size_.row(), size_.hidden, "latent qkv", seed),
      q_up_(Matrix::random(size_.heads * size_.q_head(), size_.q_rank, "latent q up", seed,
                           spread(size_.q_rank))),
      kv_b_proj_(Tensor::random(DType::bf16, {size_.heads * size_.kv_head(), size_.latent},
                                "latent kv up", seed, spread(size_.latent))),
      out_(Matrix::random(size_.hidden, size_.heads * size_.value, "latent out", seed,
                          spread(size_.heads * size_.value))),
      sparse_layer_(size_, num_pages, page_size, seed) {}

std::vector<std::string> DeepseekStack::describe() const {
  return {
      fmt::format("hidden {}, {} heads, latent {} + rope {}, 2 layers, {} pages of {} tokens",
                  size_.hidden, size_.heads, size_.latent, size_.rope, pool_.options().num_pages,
                  pool_.options().page_size),
      fmt::format("layer 0: dense latent attention; rows {}",
                  pool_.options().row_format.describe()),
      fmt::format("layer 1: indexer ({} heads of {}, top {}) and sparse attention; rows {}",
                  size_.index_heads, size_.index_dim, size_.top_k,
                  sparse_layer_.row_format().describe()),
  };
}

void DeepseekStack::poison(PageId page) {
  pool_.poison(page);
  sparse_layer_.poison(page);
}

void DeepseekStack::copy_pages(const Batch& batch, Referee& referee) const {
  copy_pages_in(pool_, batch, referee);
  sparse_layer_.copy_pages(batch, referee);
}

std::vector<std::string> DeepseekStack::notes() const {
  const std::int64_t visible = std::max<std::int64_t>(sparse_layer_.num_visible(), 1);
  return {fmt::format(
      "sparse attention read {} of {} visible rows ({:.0f} %)", sparse_layer_.num_selected(),
      sparse_layer_.num_visible(),
      100.0 * static_cast<double>(sparse_layer_.num_selected()) / static_cast<double>(visible))};
}

std::vector<TokenId> DeepseekStack::run(const Batch& batch, Referee& referee) {
  Matrix hidden = vocabulary_.embed(batch.tokens);
  add_to(hidden, run_dense_layer(rms_normalized(hidden), batch, referee));
  add_to(hidden, sparse_layer_.run(rms_normalized(hidden), batch, referee));
  require_finite(hidden, referee);
  return vocabulary_.choose(hidden, batch.last_rows);
}

Matrix DeepseekStack::run_dense_layer(const Matrix& x, const Batch& batch, Referee& referee) const {
  const PagedKVCache cache = pool_.view(batch.page_table, batch.cache_lengths);
  const Tensor x16 = to_tensor(x, DType::bf16, {x.rows, x.columns});
  const Tensor q_low(DType::bf16, {x.rows, size_.q_rank});
  referee.call(kFusedQkvMatmul, {.x = x16.view(),
                                 .row_offsets = batch.row_offsets.view(),
                                 .weight = qkv_.view(),
                                 .cache = cache,
                                 .layer = 0,
                                 .out = q_low.view()});
  const Tensor q = to_tensor(project(rms_normalized(to_matrix(q_low)), q_up_), DType::bf16,
                             {x.rows, size_.heads, size_.q_head()});
  const Tensor out(DType::bf16, {x.rows, size_.heads, size_.value});
  if (batch.max_new_tokens > kMlaDecodeMaxNewTokens) {
    prefill(q, out, cache, batch, referee);
  } else {
    decode(q, out, cache, batch, referee);
  }
  return project(to_matrix(out), out_);
}

void DeepseekStack::prefill(const Tensor& q, const Tensor& out, const PagedKVCache& cache,
                            const Batch& batch, Referee& referee) const {
  const TensorView row_offsets = batch.row_offsets.view();
  const std::int64_t num_chunks =
      mla_prefill_num_chunks(on_host(row_offsets), on_host(cache), kBufferTokens);
  const Tensor buffer_row_offsets(DType::u32, {num_chunks, cache.batch() + 1});
  const Tensor cache_offsets(DType::u32, {num_chunks, cache.batch() + 1});
  const Tensor buffer_lengths(DType::i32, {num_chunks});
  const MlaPrefillChunks chunks{.buffer_row_offsets = buffer_row_offsets.view(),
                                .cache_offsets = cache_offsets.view(),
                                .buffer_lengths = buffer_lengths.view(),
                                .buffer_tokens = kBufferTokens};
  referee.call(kMlaPrefillPlan,
               {.row_offsets = row_offsets, .cache = cache, .layer = 0, .chunks = chunks});
  referee.call(kMlaPrefill, {.q = q.view(),
                             .row_offsets = row_offsets,
                             .cache = cache,
                             .layer = 0,
                             .freqs_cis = freqs_cis_.view(),
                             .kv_norm_gamma = kv_norm_gamma_.view(),
                             .kv_b_proj = kv_b_proj_.view(),
                             .scale = attention_scale(size_),
                             .chunks = chunks,
                             .out = out.view()});
}

void DeepseekStack::decode(const Tensor& q, const Tensor& out, const PagedKVCache& cache,
                           const Batch& batch, Referee& referee) const {
  const AbsorbedWeights weights = absorb_kv_b_proj(kv_b_proj_.view(), size_.heads, size_.nope);
  referee.call(kMlaDecode, {.q = q.view(),
                            .row_offsets = batch.row_offsets.view(),
                            .cache = cache,
                            .layer = 0,
                            .freqs_cis = freqs_cis_.view(),
                            .kv_norm_gamma = kv_norm_gamma_.view(),
                            .w_uk = weights.w_uk,
                            .w_uv = weights.w_uv,
                            .scale = attention_scale(size_),
                            .out = out.view()});
}

}  // namespace quire::tools::demo
