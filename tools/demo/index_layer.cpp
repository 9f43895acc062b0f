// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/index_layer.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "quire/paged_kv_operand.h"
#include "reference/index_rows.h"
#include "reference/ragged.h"
#include "reference/row_codec.h"

namespace quire::tools::demo {
namespace {

// Layers of the cache: what one op left, and what the same steps leave one by one.
constexpr std::int64_t kFused = 0;
constexpr std::int64_t kComposed = 1;

Matrix random_weight(std::int64_t rows, std::int64_t columns, const char* name,
                     std::uint64_t seed) {
  return Matrix::random(rows, columns, name, seed, 1.0 / std::sqrt(static_cast<double>(columns)));
}

Tensor filled(std::int64_t count, double value) {
  Tensor tensor(DType::f32, {count});
  for (std::int64_t i = 0; i < count; ++i) tensor.view().store({i}, value);
  return tensor;
}

PagePoolOptions pool_options(std::int64_t num_pages, std::int64_t page_size,
                             std::int64_t index_dim) {
  const auto columns = static_cast<std::int32_t>(index_dim);
  return {.num_pages = num_pages,
          .page_size = page_size,
          .num_layers = 2,
          .num_kv_heads = 1,
          .is_mla = true,
          .row_format = RowFormat::scaled(DType::fp8_e4m3, columns, columns)};
}

double length(std::span<const double> row) {
  return std::sqrt(std::inner_product(row.begin(), row.end(), row.begin(), 0.0));
}

}  // namespace

IndexLayer::IndexLayer(const LatentSize& size, std::int64_t num_pages, std::int64_t page_size,
                       std::uint64_t seed)
    : size_(size),
      pool_(pool_options(num_pages, page_size, size.index_dim)),
      freqs_cis_(make_freqs_cis(num_pages * page_size, size.rope)),
      norm_weight_(filled(size.index_dim, 1.0)),
      norm_bias_(filled(size.index_dim, 0.0)),
      queries_(random_weight(size.index_heads * size.index_dim, size.q_rank, "index q", seed)),
      keys_(random_weight(size.index_dim, size.hidden, "index k", seed)),
      weights_(random_weight(size.index_heads, size.hidden, "index weights", seed)) {}

PagedKVCache IndexLayer::cache(const Batch& batch) const {
  return pool_.view(batch.page_table, batch.cache_lengths);
}

void IndexLayer::store_keys(const Matrix& x, const Batch& batch, Referee& referee) const {
  const Matrix keys = project(x, keys_);
  const Tensor raw = to_tensor(keys, DType::bf16, {x.rows, size_.index_dim});
  referee.call(kStoreIndexKeys, {.x = raw.view(),
                                 .row_offsets = batch.row_offsets.view(),
                                 .cache = cache(batch),
                                 .layer = kFused,
                                 .norm_weight = norm_weight_.view(),
                                 .norm_bias = norm_bias_.view(),
                                 .freqs_cis = freqs_cis_.view(),
                                 .hadamard = true});
  store_composed_keys(keys, batch, referee);
  compare_keys(batch, referee);
}

// The same keys through one op after the other, without the Hadamard step.
void IndexLayer::store_composed_keys(const Matrix& keys, const Batch& batch,
                                     Referee& referee) const {
  const Tensor rotated =
      to_tensor(layer_normalized(keys), DType::bf16, {keys.rows, 1, size_.index_dim});
  referee.call(kRope, {.q = rotated.view(),
                       .row_offsets = batch.row_offsets.view(),
                       .cache = cache(batch),
                       .layer = kComposed,
                       .freqs_cis = freqs_cis_.view(),
                       .rotate_key = false,
                       .out = rotated.view()});
  const Tensor codes(DType::fp8_e4m3, {keys.rows, 1, size_.index_dim});
  const Tensor scales(DType::f32, {keys.rows, 1, 1});
  referee.call(kQuantizeFp8, {.x = rotated.view({keys.rows, size_.index_dim}),
                              .scale_rounding = ScaleRounding::power_of_two,
                              .out = codes.view({keys.rows, size_.index_dim}),
                              .scale = scales.view({keys.rows, 1})});
  referee.call(kStore, {.x = codes.view(),
                        .row_offsets = batch.row_offsets.view(),
                        .cache = cache(batch),
                        .layer = kComposed,
                        .side = KvSide::key});
  referee.call(kStoreScales, {.scales = scales.view(),
                              .row_offsets = batch.row_offsets.view(),
                              .cache = cache(batch),
                              .layer = kComposed,
                              .side = KvSide::key});
}

// Hadamard's step changes no length and undoes itself: turned back, the rows of the one op must be
// those of the single steps but for two roundings to fp8, of at most 2^-4 of a row each, and to bf16.
void IndexLayer::compare_keys(const Batch& batch, Referee& referee) const {
  constexpr double kRoundings = 0x1p-3 + 0x1p-6;
  const PagedKVCache view = cache(batch);
  Fault fault;
  for (const reference::Token& token : reference::tokens_of(batch.row_offsets.view(), view)) {
    const auto row = [&](std::int64_t layer) {
      return reference::decode_row(PagedKvOperand(view.key(layer)), token.sequence, 0,
                                   token.position);
    };
    const std::vector<double> composed = row(kComposed);
    std::vector<double> difference = reference::hadamard(row(kFused));
    for (std::size_t i = 0; i < composed.size(); ++i) difference[i] -= composed[i];
    if (length(difference) <= kRoundings * length(composed)) continue;
    fault = fmt::format("key of token {} is not the one that single steps give", token.index);
  }
  referee.require(kStoreIndexKeys.name, fault);
}

Tensor IndexLayer::select_keys(const Matrix& x, const Matrix& q_low, const Batch& batch,
                               Referee& referee) const {
  const Tensor raw = to_tensor(project(q_low, queries_), DType::bf16,
                               {x.rows, size_.index_heads, size_.index_dim});
  const Tensor weights = to_tensor(project(x, weights_), DType::f32, {x.rows, size_.index_heads});
  const Tensor q(DType::fp8_e4m3, {x.rows, size_.index_heads, size_.index_dim});
  const Tensor q_scale(DType::f32, {x.rows, size_.index_heads});
  referee.call(kQuantizeIndexQueries,
               {.q = raw.view(),
                .row_offsets = batch.row_offsets.view(),
                .cache = cache(batch),
                .weights = weights.view(),
                .factor = 1.0 / std::sqrt(static_cast<double>(size_.index_heads * size_.index_dim)),
                .freqs_cis = freqs_cis_.view(),
                .hadamard = true,
                .out = q.view(),
                .q_scale = q_scale.view()});
  Tensor indices(DType::i32, {x.rows, size_.top_k});
  referee.call(kMlaIndexer, {.q = q.view(),
                             .q_scale = q_scale.view(),
                             .row_offsets = batch.row_offsets.view(),
                             .cache = cache(batch),
                             .layer = kFused,
                             .top_k = size_.top_k,
                             .out = indices.view()});
  return indices;
}

}  // namespace quire::tools::demo
