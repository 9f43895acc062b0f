// SPDX-License-Identifier: Apache-2.0
// Keys of another operand, chosen by index: what sparse attention reads. Every token of the call has
// a list of its own, so the tokens are this operand's sequences, and key j of a token is slot j of
// its list.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "quire/kv_operand.h"
#include "quire/tensor_view.h"

namespace quire {

// What a token's indices count: the keys [0, num_keys) of a sequence of the base operand.
struct GatherSource {
  std::int64_t sequence;
  std::int64_t num_keys;
};

template <KvOperand Base> class GatheredOperand {
 public:
  // indices i32 [tokens, slots]; lengths i32 [tokens]: slots to look at, all of them where absent;
  // sources [tokens], which outlive the operand. An index outside of its keys gives no row.
  GatheredOperand(const Base& base, const TensorView& indices,
                  const std::optional<TensorView>& lengths, const GatherSource* sources)
      : base_(base), indices_(indices), lengths_(lengths), sources_(sources) {}

  RowLayout layout() const { return base_.layout(); }
  KvHeads heads() const { return base_.heads(); }
  std::int64_t num_keys(std::int64_t token, std::int64_t /*new_tokens*/) const {
    const std::int64_t slots = indices_.shape[1];
    if (!lengths_) return slots;
    const std::int64_t length = lengths_->as<const std::int32_t>()[lengths_->offset({token})];
    return std::clamp<std::int64_t>(length, 0, slots);
  }
  // Slots have no positions: a token stands behind all of its own.
  std::int64_t first_position(std::int64_t token, std::int64_t new_tokens) const {
    return num_keys(token, new_tokens) - new_tokens;
  }
  void locate(std::int64_t token, std::int64_t head, std::int64_t first, std::int64_t count,
              RowAddress* rows) const {
    const auto* slots = indices_.as<const std::int32_t>() + indices_.offset({token, first});
    const GatherSource& source = sources_[token];
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t key = slots[i * indices_.strides[1]];
      rows[i] = {};
      if (key < 0 || key >= source.num_keys) continue;
      base_.locate(source.sequence, head, key, 1, rows + i);
    }
  }

 private:
  Base base_;
  TensorView indices_;
  std::optional<TensorView> lengths_;
  const GatherSource* sources_;
};

}  // namespace quire
