// SPDX-License-Identifier: Apache-2.0
// Sparse attention as DeepSeek-V3.2 does it: an indexer looks at small fp8 keys and picks the top_k
// positions for each token; attention reads only those rows of the latent cache.
//
// Here the index keys of positions 2, 5 and 11 point where the query points, so the indexer must
// pick exactly them, and attention returns the mean of their latent rows (the scores are equal).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <vector>

#include "quire/ops/mla_indexer.h"
#include "quire/ops/quantize_index_queries.h"
#include "quire/ops/sparse_mla.h"
#include "quire/ops/store.h"
#include "quire/ops/store_index_keys.h"

namespace {

using quire::DType;

constexpr std::int64_t kPages = 4;
constexpr std::int64_t kPageSize = 4;
constexpr std::int64_t kTokens = 13;
constexpr std::int64_t kIndexDim = 8;
constexpr std::int64_t kLatent = 4;
constexpr std::int64_t kRope = 2;
constexpr std::int64_t kTopK = 3;
constexpr int kRelevant[] = {2, 5, 11};

template <typename T>
quire::TensorView view(std::vector<T>& data, DType dtype,
                       std::initializer_list<std::int64_t> shape) {
  return quire::TensorView::contiguous(data.data(), dtype, shape);
}

bool is_relevant(std::int64_t token) {
  return std::ranges::find(kRelevant, token) != std::end(kRelevant);
}

}  // namespace

int main() {
  std::vector<std::uint32_t> table{2, 0, 3, 1};
  std::vector<std::uint32_t> no_tokens{0};
  const quire::TensorView page_table = view(table, DType::u32, {1, kPages});
  const quire::TensorView empty = view(no_tokens, DType::u32, {1});
  std::vector<std::uint8_t> index_pool(kPages * kPageSize * kIndexDim, 0xff);  // NaN
  std::vector<float> index_scales(kPages * kPageSize);
  std::vector<float> latent_pool(kPages * kPageSize * (kLatent + kRope));
  const quire::PagedKVCache index_cache{
      .blocks = view(index_pool, DType::fp8_e4m3, {kPages, 1, 1, kPageSize, 1, kIndexDim}),
      .cache_lengths = empty,
      .page_table = page_table,
      .scales = view(index_scales, DType::f32, {kPages, 1, 1, kPageSize, 1, 1})};
  const quire::PagedKVCache latent_cache{
      .blocks = view(latent_pool, DType::f32, {kPages, 1, 1, kPageSize, 1, kLatent + kRope}),
      .cache_lengths = empty,
      .page_table = page_table};

  // Index keys: +1 where relevant, -1 elsewhere. The rows hold the position in their first column.
  std::vector<float> index_keys;
  std::vector<float> rows;
  for (std::int64_t token = 0; token < kTokens; ++token) {
    index_keys.insert(index_keys.end(), kIndexDim, is_relevant(token) ? 1.0f : -1.0f);
    rows.insert(rows.end(), {static_cast<float>(token), 1.0f, 0.0f, 0.0f, 0.0f, 0.0f});
  }
  std::vector<std::uint32_t> offsets{0, kTokens};
  const quire::TensorView row_offsets = view(offsets, DType::u32, {2});
  // A model would give the weights of the LayerNorm and the rope here too. The Hadamard rotation
  // spreads a large column over all before the rounding to fp8; keys and queries take the same one.
  quire::store_index_keys({.x = view(index_keys, DType::f32, {kTokens, kIndexDim}),
                           .row_offsets = row_offsets,
                           .cache = index_cache,
                           .hadamard = true});
  quire::store({.x = view(rows, DType::f32, {kTokens, 1, kLatent + kRope}),
                .row_offsets = row_offsets,
                .cache = latent_cache});

  // One index head: its fp8 codes, and their scale times the gate of the head (absent here: 1).
  std::vector<float> index_q(kTokens * kIndexDim, 0.5f);
  std::vector<std::uint8_t> codes(index_q.size());
  std::vector<float> q_scale(kTokens);
  quire::quantize_index_queries({.q = view(index_q, DType::f32, {kTokens, 1, kIndexDim}),
                                 .row_offsets = row_offsets,
                                 .cache = index_cache,
                                 .hadamard = true,
                                 .out = view(codes, DType::fp8_e4m3, {kTokens, 1, kIndexDim}),
                                 .q_scale = view(q_scale, DType::f32, {kTokens, 1})});
  std::vector<std::int32_t> indices(kTokens * kTopK);
  quire::mla_indexer({.q = view(codes, DType::fp8_e4m3, {kTokens, 1, kIndexDim}),
                      .q_scale = view(q_scale, DType::f32, {kTokens, 1}),
                      .row_offsets = row_offsets,
                      .cache = index_cache,
                      .top_k = kTopK,
                      .out = view(indices, DType::i32, {kTokens, kTopK})});

  std::vector<float> q(kTokens * (kLatent + kRope), 0.0f);  // absorbed; zero: equal scores
  std::vector<float> out(kTokens * kLatent);
  quire::sparse_mla({.q = view(q, DType::f32, {kTokens, 1, kLatent + kRope}),
                     .row_offsets = row_offsets,
                     .cache = latent_cache,
                     .indices = view(indices, DType::i32, {kTokens, kTopK}),
                     .scale = 1.0,
                     .out = view(out, DType::f32, {kTokens, 1, kLatent})});

  const std::int32_t* last = &indices[(kTokens - 1) * kTopK];
  const float mean = out[(kTokens - 1) * kLatent];
  std::cout << "token 12 attends to positions " << last[0] << ", " << last[1] << ", " << last[2]
            << "; mean position " << mean << '\n';
  std::cout << "token 0 sees only itself: " << indices[0] << ", " << indices[1] << ", "
            << indices[2] << " (-1 = no key)\n";
  const bool is_right = std::equal(last, last + kTopK, kRelevant) &&
                        std::abs(mean - 6.0f) < 1e-5f && indices[0] == 0 && indices[1] == -1;
  return is_right ? 0 : 1;
}
