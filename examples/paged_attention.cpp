// SPDX-License-Identifier: Apache-2.0
// Two sequences in one page pool: store their keys and values, attend, read the log-sum-exp.
//
//   sequence 0   6 tokens   pages 3, 0      (in any order: the table says where they are)
//   sequence 1   3 tokens   page 1
//
// The queries are zero, so every visible key has the same weight: the output is the mean of the
// values, and the LSE is the logarithm of the number of keys.
#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <vector>

#include "quire/ops/flash_attention.h"
#include "quire/ops/store.h"

namespace {

constexpr std::int64_t kNumPages = 4;
constexpr std::int64_t kPageSize = 4;
constexpr std::int64_t kHeadDim = 2;
constexpr std::int64_t kHeads = 2;  // both read the one key head
constexpr std::int64_t kTokens = 9;

template <typename T>
quire::TensorView view(std::vector<T>& data, quire::DType dtype,
                       std::initializer_list<std::int64_t> shape) {
  return quire::TensorView::contiguous(data.data(), dtype, shape);
}

}  // namespace

int main() {
  // [num_pages, K and V, layers, page_size, kv_heads, head_dim]. Memory that no token owns may hold
  // anything, even NaN.
  std::vector<float> pool(kNumPages * 2 * kPageSize * kHeadDim,
                          std::numeric_limits<float>::quiet_NaN());
  std::vector<std::uint32_t> lengths{0, 0};        // nothing cached before this call
  std::vector<std::uint32_t> table{3, 0,           // sequence 0
                                   1, kNumPages};  // sequence 1; kNumPages means "no page"
  const quire::PagedKVCache cache{
      .blocks = view(pool, quire::DType::f32, {kNumPages, 2, 1, kPageSize, 1, kHeadDim}),
      .cache_lengths = view(lengths, quire::DType::u32, {2}),
      .page_table = view(table, quire::DType::u32, {2, 2}),
  };

  // The new tokens of both sequences, one after the other: 6 and 3.
  std::vector<std::uint32_t> offsets{0, 6, 9};
  const quire::TensorView row_offsets = view(offsets, quire::DType::u32, {3});
  std::vector<float> keys(kTokens * kHeadDim, 1.0f);
  std::vector<float> values;
  for (int token = 0; token < kTokens; ++token) {
    values.push_back(static_cast<float>(token));
    values.push_back(-1.0f);
  }
  quire::store({.x = view(keys, quire::DType::f32, {kTokens, 1, kHeadDim}),
                .row_offsets = row_offsets,
                .cache = cache,
                .layer = 0,
                .side = quire::KvSide::key});
  quire::store({.x = view(values, quire::DType::f32, {kTokens, 1, kHeadDim}),
                .row_offsets = row_offsets,
                .cache = cache,
                .layer = 0,
                .side = quire::KvSide::value});

  std::vector<float> q(kTokens * kHeads * kHeadDim, 0.0f);
  std::vector<float> out(q.size());
  std::vector<float> lse(kTokens * kHeads);
  quire::flash_attention({.q = view(q, quire::DType::f32, {kTokens, kHeads, kHeadDim}),
                          .row_offsets = row_offsets,
                          .cache = cache,
                          .layer = 0,
                          .mask = quire::Mask::causal(),
                          .out = view(out, quire::DType::f32, {kTokens, kHeads, kHeadDim}),
                          .lse = view(lse, quire::DType::f32, {kTokens, kHeads})});

  int failures = 0;
  for (int token = 0; token < kTokens; ++token) {
    const int first = token < 6 ? 0 : 6;  // of its sequence
    const int num_keys = token - first + 1;
    const float mean = static_cast<float>(first + token) / 2.0f;
    const float got_mean = out[static_cast<std::size_t>(token * kHeads * kHeadDim)];
    const float got_lse = lse[static_cast<std::size_t>(token * kHeads)];
    std::cout << "token " << token << " sees " << num_keys << " keys: mean value " << got_mean
              << ", exp(lse) " << std::exp(got_lse) << '\n';
    const bool is_right = std::abs(got_mean - mean) < 1e-5f &&
                          std::abs(got_lse - std::log(static_cast<float>(num_keys))) < 1e-5f;
    if (!is_right) ++failures;
  }
  return failures == 0 ? 0 : 1;
}
