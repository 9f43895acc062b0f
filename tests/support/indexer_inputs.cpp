// SPDX-License-Identifier: Apache-2.0
#include "support/indexer_inputs.h"

#include <cstddef>
#include <utility>

#include "reference/mla_indexer.h"
#include "support/attention_inputs.h"

namespace quire::test {

CacheOptions index_options(std::vector<std::uint32_t> cached, std::vector<std::uint32_t> fresh,
                           std::int32_t head_dim) {
  return {.cache_lengths = std::move(cached),
          .new_tokens = std::move(fresh),
          .row_format = RowFormat::scaled(DType::fp8_e4m3, head_dim, head_dim),
          .num_kv_heads = 1,
          .is_mla = true};
}

IndexerInputs::IndexerInputs(const CacheOptions& options, std::int64_t heads, std::int64_t top_k)
    : cache(options) {
  const std::int64_t tokens = cache.num_tokens();
  q = HostTensor::random(DType::fp8_e4m3, {tokens, heads, options.row_format.width()}, 31, 4.0);
  q_scale = HostTensor::random(DType::f32, {tokens, heads}, 32);
  out = HostTensor(DType::i32, {tokens, top_k});
}

MlaIndexerArgs IndexerInputs::args() const {
  return {.q = q.view(),
          .q_scale = q_scale.view(),
          .row_offsets = cache.row_offsets(),
          .cache = cache.view(),
          .layer = kTestLayer,
          .top_k = out.view().shape[1],
          .out = out.view()};
}

std::vector<std::int32_t> IndexerInputs::row(std::int64_t token) const {
  std::vector<std::int32_t> values;
  for (std::int64_t slot = 0; slot < out.view().shape[1]; ++slot) {
    values.push_back(static_cast<std::int32_t>(out.at({token, slot})));
  }
  return values;
}

PickInputs::PickInputs(const CacheOptions& options, std::int64_t top_k, std::int64_t heads)
    : IndexerInputs(options, heads, top_k) {
  const std::int64_t tokens = cache.num_tokens();
  q = HostTensor::filled(DType::fp8_e4m3, {tokens, heads, options.row_format.width()}, 0.0);
  q_scale = HostTensor::filled(DType::f32, {tokens, heads}, 0.0);
  for (std::int64_t token = 0; token < tokens; ++token) {
    q.view().store({token, 0, 0}, 1.0);
    q_scale.view().store({token, 0}, 1.0);
  }
}

void PickInputs::set_score(std::int64_t sequence, std::int64_t key, double number, double scale) {
  const KvLayerView view = cache.view().key(kTestLayer);
  for (std::int32_t i = 0; i < view.width(); ++i) {
    view.store(sequence, 0, key, i, i == 0 ? number : 0.0);
  }
  view.store_scale(sequence, 0, key, 0, scale);
}

void PickInputs::set_scores(const std::vector<double>& numbers) {
  for (std::size_t key = 0; key < numbers.size(); ++key) {
    set_score(0, static_cast<std::int64_t>(key), numbers[key]);
  }
}

std::vector<double> PickInputs::run() const {
  reference::mla_indexer(args());
  return out.values();
}

RandomInputs::RandomInputs(const CacheOptions& options, std::int64_t top_k)
    : IndexerInputs(options, 4, top_k) {
  cache.fill_cached(kTestLayer, 33, 3.0);
  cache.fill_new(kTestLayer, 34, 3.0);
}

}  // namespace quire::test
