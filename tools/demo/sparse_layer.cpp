// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/sparse_layer.h"

#include <fmt/format.h>

#include <cmath>

namespace quire::tools::demo {
namespace {

std::int32_t narrow(std::int64_t value) {
  return static_cast<std::int32_t>(value);
}

Matrix random_weight(std::int64_t rows, std::int64_t columns, const char* name,
                     std::uint64_t seed) {
  return Matrix::random(rows, columns, name, seed, 1.0 / std::sqrt(static_cast<double>(columns)));
}

PagePoolOptions pool_options(std::int64_t num_pages, std::int64_t page_size,
                             const RowFormat& row_format) {
  return {.num_pages = num_pages,
          .page_size = page_size,
          .num_layers = 1,
          .num_kv_heads = 1,
          .is_mla = true,
          .row_format = row_format};
}

}  // namespace

SparseLayer::SparseLayer(const LatentSize& size, std::int64_t num_pages, std::int64_t page_size,
                         std::uint64_t seed)
    : size_(size),
      latent_pool_(pool_options(num_pages, page_size,
                                RowFormat::mla_fp8_block(narrow(size.latent), narrow(size.rope),
                                                         narrow(size.scale_block)))),
      freqs_cis_(make_freqs_cis(num_pages * page_size, size.rope)),
      q_down_(random_weight(size.q_rank, size.hidden, "sparse q down", seed)),
      kv_down_(random_weight(size.row(), size.hidden, "sparse kv down", seed)),
      q_up_(random_weight(size.heads * size.q_head(), size.q_rank, "sparse q up", seed)),
      kv_up_(random_weight(size.heads * size.kv_head(), size.latent, "sparse kv up", seed)),
      out_(random_weight(size.hidden, size.heads * size.value, "sparse out", seed)),
      index_(size, num_pages, page_size, seed) {}

void SparseLayer::poison(PageId page) {
  latent_pool_.poison(page);
  index_.poison(page);
}

void SparseLayer::copy_pages(const Batch& batch, Referee& referee) const {
  copy_pages_in(latent_pool_, batch, referee);
  index_.copy_pages(batch, referee);
}

PagedKVCache SparseLayer::latent_cache(const Batch& batch) const {
  return latent_pool_.view(batch.page_table, batch.cache_lengths);
}

Matrix SparseLayer::run(const Matrix& x, const Batch& batch, Referee& referee) {
  const Matrix q_low = rms_normalized(project(x, q_down_));
  store_latents(x, batch, referee);
  index_.store_keys(x, batch, referee);
  const Tensor indices = index_.select_keys(x, q_low, batch, referee);
  check_physical_rows(indices, batch, referee);
  count_keys(indices, batch);

  const Tensor q = absorb_queries(q_low, batch, referee);
  const Tensor latents(DType::bf16, {x.rows, size_.heads, size_.latent});
  referee.call(kSparseMla, {.q = q.view(),
                            .row_offsets = batch.row_offsets.view(),
                            .cache = latent_cache(batch),
                            .layer = 0,
                            .indices = indices.view(),
                            .scale = 1.0 / std::sqrt(static_cast<double>(size_.q_head())),
                            .out = latents.view()});
  return project(raise_values(to_matrix(latents)), out_);
}

// The latent half normalised, the rope half rotated, then quantized by the store.
void SparseLayer::store_latents(const Matrix& x, const Batch& batch, Referee& referee) const {
  Matrix rows = project(x, kv_down_);
  Matrix latents(rows.rows, size_.latent);
  const auto latent = static_cast<std::size_t>(size_.latent);
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    std::ranges::copy(rows.row(row).first(latent), latents.row(row).begin());
  }
  latents = rms_normalized(latents);
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    std::ranges::copy(latents.row(row), rows.row(row).begin());
  }
  const Tensor finished = to_tensor(rows, DType::bf16, {rows.rows, 1, size_.row()});
  const PagedKVCache cache = latent_cache(batch);
  rotate(finished, cache, batch, referee);
  referee.call(kStore, {.x = finished.view(),
                        .row_offsets = batch.row_offsets.view(),
                        .cache = cache,
                        .layer = 0,
                        .side = KvSide::key});
}

// q' = [q_nope · K rows of kv_up | rotated q_rope] for each head.
Tensor SparseLayer::absorb_queries(const Matrix& q_low, const Batch& batch,
                                   Referee& referee) const {
  const Matrix q = project(q_low, q_up_);
  Matrix absorbed(q.rows, size_.heads * size_.row());
  for (std::int64_t token = 0; token < q.rows; ++token) {
    for (std::int64_t head = 0; head < size_.heads; ++head) {
      const auto from = q.row(token).subspan(static_cast<std::size_t>(head * size_.q_head()));
      const auto to = absorbed.row(token).subspan(static_cast<std::size_t>(head * size_.row()));
      for (std::int64_t j = 0; j < size_.nope; ++j) {
        const std::span<const float> key = kv_up_.row(head * size_.kv_head() + j);
        for (std::size_t l = 0; l < key.size(); ++l) {
          to[l] += from[static_cast<std::size_t>(j)] * key[l];
        }
      }
      for (std::int64_t j = 0; j < size_.rope; ++j) {
        to[static_cast<std::size_t>(size_.latent + j)] =
            from[static_cast<std::size_t>(size_.nope + j)];
      }
    }
  }
  Tensor result = to_tensor(absorbed, DType::bf16, {q.rows, size_.heads, size_.row()});
  rotate(result, latent_cache(batch), batch, referee);
  return result;
}

// latents [tokens, heads · latent] · V rows of kv_up → [tokens, heads · value].
Matrix SparseLayer::raise_values(const Matrix& latents) const {
  Matrix values(latents.rows, size_.heads * size_.value);
  for (std::int64_t token = 0; token < latents.rows; ++token) {
    for (std::int64_t column = 0; column < values.columns; ++column) {
      const std::int64_t head = column / size_.value;
      const std::span<const float> weight =
          kv_up_.row(head * size_.kv_head() + size_.nope + column % size_.value);
      const std::span<const float> latent =
          latents.row(token).subspan(static_cast<std::size_t>(head * size_.latent), weight.size());
      float sum = 0.0f;
      for (std::size_t l = 0; l < weight.size(); ++l) sum += weight[l] * latent[l];
      values.row(token)[static_cast<std::size_t>(column)] = sum;
    }
  }
  return values;
}

void SparseLayer::rotate(const Tensor& x, const PagedKVCache& cache, const Batch& batch,
                         Referee& referee) const {
  referee.call(kRope, {.q = x.view(),
                       .row_offsets = batch.row_offsets.view(),
                       .cache = cache,
                       .layer = 0,
                       .freqs_cis = freqs_cis_.view(),
                       .interleaved = true,
                       .rotate_key = false,
                       .out = x.view()});
}

// Kernels that gather rows take physical ones. Each must be the address where the cache's own view
// finds the position.
void SparseLayer::check_physical_rows(const Tensor& indices, const Batch& batch,
                                      Referee& referee) const {
  const PagedKVCache cache = latent_cache(batch);
  const Tensor rows(DType::i32, {indices.view().shape[0], size_.top_k});
  referee.call(kRemapSparseIndices, {.indices = indices.view(),
                                     .row_offsets = batch.row_offsets.view(),
                                     .cache = cache,
                                     .out = rows.view()});
  const KvLayerView key = cache.key(0);
  const auto* offsets = batch.row_offsets.view().as<std::uint32_t>();
  std::optional<std::string> fault;
  for (std::int64_t sequence = 0; sequence < cache.batch(); ++sequence) {
    for (std::int64_t token = offsets[sequence]; token < offsets[sequence + 1]; ++token) {
      for (std::int64_t slot = 0; slot < size_.top_k; ++slot) {
        const std::int64_t at = token * size_.top_k + slot;
        const std::int32_t position = indices.view().as<std::int32_t>()[at];
        const std::int32_t row = rows.view().as<std::int32_t>()[at];
        const std::byte* wanted = position < 0 ? nullptr : key.row(sequence, position, 0);
        const std::byte* found = row < 0 ? nullptr
                                         : key.data + row / key.page_size * key.page_stride_bytes +
                                               row % key.page_size * key.token_stride_bytes;
        if (found == wanted) continue;
        fault = fmt::format("row {} of token {} is not position {}", row, token, position);
      }
    }
  }
  referee.require(kRemapSparseIndices.name, fault);
}

void SparseLayer::count_keys(const Tensor& indices, const Batch& batch) {
  const TensorView chosen = indices.view();
  for (std::int64_t i = 0; i < chosen.numel(); ++i) {
    if (chosen.as<std::int32_t>()[i] >= 0) ++num_selected_;
  }
  const auto* offsets = batch.row_offsets.view().as<std::uint32_t>();
  const auto* lengths = batch.cache_lengths.as<std::uint32_t>();
  for (std::size_t b = 0; b < batch.last_rows.size(); ++b) {
    for (std::uint32_t i = 0; i < offsets[b + 1] - offsets[b]; ++i) {
      num_visible_ += lengths[b] + i + 1;
    }
  }
}

}  // namespace quire::tools::demo
