// SPDX-License-Identifier: Apache-2.0
#include "reference/ragged.h"

namespace quire::reference {
namespace {

std::int64_t first_token(const TensorView& row_offsets, std::int64_t sequence) {
  return row_offsets.as<const std::uint32_t>()[row_offsets.offset({sequence})];
}

void add_tokens(const TensorView& row_offsets, std::int64_t sequence, std::int64_t first_position,
                std::vector<Token>& tokens) {
  const std::int64_t first = first_token(row_offsets, sequence);
  const std::int64_t count = num_new_tokens(row_offsets, sequence);
  for (std::int64_t local = 0; local < count; ++local) {
    tokens.push_back({first + local, sequence, local, first_position + local});
  }
}

}  // namespace

std::vector<Token> tokens_of(const TensorView& row_offsets, const PagedKVCache& cache) {
  std::vector<Token> tokens;
  for (std::int64_t sequence = 0; sequence < cache.batch(); ++sequence) {
    add_tokens(row_offsets, sequence, cache.cache_length(sequence), tokens);
  }
  return tokens;
}

std::vector<Token> tokens_of(const TensorView& row_offsets, const KvOperandRef& keys) {
  std::vector<Token> tokens;
  for (std::int64_t sequence = 0; sequence + 1 < row_offsets.shape[0]; ++sequence) {
    const std::int64_t count = num_new_tokens(row_offsets, sequence);
    add_tokens(row_offsets, sequence, keys.first_position(sequence, count), tokens);
  }
  return tokens;
}

std::int64_t num_new_tokens(const TensorView& row_offsets, std::int64_t sequence) {
  return first_token(row_offsets, sequence + 1) - first_token(row_offsets, sequence);
}

std::int64_t num_keys(const TensorView& row_offsets, const PagedKVCache& cache,
                      std::int64_t sequence) {
  return cache.cache_length(sequence) + num_new_tokens(row_offsets, sequence);
}

}  // namespace quire::reference
