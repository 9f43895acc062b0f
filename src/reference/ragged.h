// SPDX-License-Identifier: Apache-2.0
// The new tokens of a ragged batch, one by one: sequence b owns the tokens [row_offsets[b],
// row_offsets[b + 1]).
#pragma once

#include <cstdint>
#include <vector>

#include "quire/kv_operand.h"
#include "quire/paged_kv_cache.h"
#include "quire/tensor_view.h"

namespace quire::reference {

struct Token {
  std::int64_t index;  // row of x, q and out
  std::int64_t sequence;
  std::int64_t local;     // index among the new tokens of its sequence
  std::int64_t position;  // absolute: keys before the new tokens + local
};

// Every token, in order. Empty sequences, wherever they stand, own none.
std::vector<Token> tokens_of(const TensorView& row_offsets, const PagedKVCache& cache);
// The same at the positions of an operand.
std::vector<Token> tokens_of(const TensorView& row_offsets, const KvOperandRef& keys);

// New tokens of a sequence.
std::int64_t num_new_tokens(const TensorView& row_offsets, std::int64_t sequence);

// Keys of a sequence once its new tokens are stored: cache_length + new tokens.
std::int64_t num_keys(const TensorView& row_offsets, const PagedKVCache& cache,
                      std::int64_t sequence);

}  // namespace quire::reference
