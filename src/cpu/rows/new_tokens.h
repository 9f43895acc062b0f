// SPDX-License-Identifier: Apache-2.0
// The new tokens of a ragged batch and their places in one layer of the cache. A block's places are
// looked up once, by the thread that works on it, and serve all its heads.
#pragma once

#include <cstdint>
#include <span>

#include "cpu/rows/row_blocks.h"
#include "cpu/rows/token_place.h"
#include "quire/kv_layer_view.h"
#include "quire/tensor_view.h"

namespace quire::cpu {

class NewTokens {
 public:
  // row_offsets: u32 [batch + 1], without gaps
  NewTokens(const TensorView& row_offsets, const KvLayerView& view)
      : offsets_(row_offsets.as<const std::uint32_t>()), view_(view) {}

  std::int64_t count() const { return offsets_[view_.batch]; }
  // Tokens first, first + 1, … into `places`.
  void locate(std::int64_t first, std::span<TokenPlace> places) const;

 private:
  std::byte* plane_of(std::int64_t sequence, std::int64_t position) const;

  const std::uint32_t* offsets_;
  KvLayerView view_;
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
