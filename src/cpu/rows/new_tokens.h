// SPDX-License-Identifier: Apache-2.0
// The new tokens of a ragged batch and their rows in an operand. A block's rows are looked up once,
// by the thread that works on it, and serve all its heads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cpu/rows/row_blocks.h"
#include "cpu/rows/token_place.h"
#include "quire/kv_operand.h"
#include "quire/paged_kv_cache.h"
#include "quire/tensor_view.h"

namespace quire::cpu {

class NewTokens {
 public:
  // row_offsets: u32 [batch + 1], without gaps. The new tokens are the last of each sequence.
  NewTokens(const TensorView& row_offsets, const KvOperandRef& rows)
      : offsets_(row_offsets.as<const std::uint32_t>()),
        batch_(row_offsets.shape[0] - 1),
        rows_(rows) {}
  // Tokens that have positions and no rows.
  NewTokens(const TensorView& row_offsets, const PagedKVCache& cache)
      : offsets_(row_offsets.as<const std::uint32_t>()),
        batch_(row_offsets.shape[0] - 1),
        cache_lengths_(cache.cache_lengths.as<const std::uint32_t>()) {}

  std::int64_t count() const { return offsets_[batch_]; }
  // Tokens first, first + 1, … into `places`.
  void locate(std::int64_t first, std::span<TokenPlace> places) const;

 private:
  // Of a sequence's first new token.
  std::int64_t first_position(std::int64_t sequence) const;
  // Places of neighbours in a sequence, all but their rows filled in.
  void find_rows(std::span<TokenPlace> places) const;

  const std::uint32_t* offsets_;
  std::int64_t batch_;
  std::optional<KvOperandRef> rows_{};
  const std::uint32_t* cache_lengths_ = nullptr;
};

// body(std::span<const TokenPlace> places, int worker) for every new token, in blocks.
template <typename Body>
void for_token_blocks(const NewTokens& tokens, std::int64_t bytes_per_token, const Context& context,
                      Body&& body) {
  for_row_blocks(tokens.count(), bytes_per_token, context, [&](RowBlock block, int worker) {
    TokenPlace places[kMostRowsInBlock];
    const std::span span(places, static_cast<std::size_t>(block.last - block.first));
    tokens.locate(block.first, span);
    body(std::span<const TokenPlace>(span), worker);
  });
}

}  // namespace quire::cpu
