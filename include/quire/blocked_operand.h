// SPDX-License-Identifier: Apache-2.0
// Keys of another operand, chosen block by block: what block-sparse attention reads. Every token and KV head
// has a list of its own, so the tokens are this operand's sequences, and key j of a token is key
// j % block_size of the block in slot j / block_size of the head's list. Heads do not share their keys: a reader asks
// for each of them, and must not reach others by the strides of KvHeads.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>

#include "quire/kv_operand.h"
#include "quire/tensor_view.h"

namespace quire {

// What a token sees of a sequence of the base operand: the keys [begin, end).
struct BlockSource {
  std::int64_t sequence;
  std::int64_t begin;
  std::int64_t end;
  std::int64_t num_blocks;  // slots of its lists to look at
};

// And of those, the ones that it shows. Without a function: all of them.
struct KeyFilter {
  const void* state = nullptr;
  bool (*shows)(const void* state, std::int64_t token, std::int64_t key) = nullptr;
};

// Base: an operand, or a reference to any.
template <typename Base>
requires(KvOperand<Base> || std::same_as<Base, KvOperandRef>) class BlockedOperand {
 public:
  // blocks i32 [tokens, heads, slots]; sources [tokens], which outlive the operand. A block that is
  // negative, or behind what the token sees, gives no rows.
  BlockedOperand(const Base& base, const TensorView& blocks, std::int64_t block_size,
                 const BlockSource* sources, const KeyFilter& filter = {})
      : base_(base), blocks_(blocks), block_size_(block_size), sources_(sources), filter_(filter) {}

  RowLayout layout() const { return base_.layout(); }
  KvHeads heads() const { return base_.heads(); }
  std::int64_t num_keys(std::int64_t token, std::int64_t /*new_tokens*/) const {
    return sources_[token].num_blocks * block_size_;
  }
  // Slots have no positions: a token stands behind all of its own.
  std::int64_t first_position(std::int64_t token, std::int64_t new_tokens) const {
    return num_keys(token, new_tokens) - new_tokens;
  }
  void locate(std::int64_t token, std::int64_t head, std::int64_t first, std::int64_t count,
              RowAddress* rows) const {
    const auto* ids = blocks_.as<const std::int32_t>() + blocks_.offset({token, head, 0});
    std::int64_t slot = first / block_size_;
    std::int64_t in_block = first - slot * block_size_;
    while (count > 0) {
      const std::int64_t run = std::min(block_size_ - in_block, count);
      const std::int64_t id = ids[slot * blocks_.strides[2]];
      locate_run(token, head, id < 0 ? -1 : id * block_size_ + in_block, run, rows);
      rows += run;
      count -= run;
      in_block = 0;
      ++slot;
    }
  }

 private:
  // Neighbouring keys; key -1: there are none.
  void locate_run(std::int64_t token, std::int64_t head, std::int64_t key, std::int64_t count,
                  RowAddress* rows) const {
    const BlockSource& source = sources_[token];
    std::fill_n(rows, count, RowAddress{});
    if (key < 0) return;
    const std::int64_t begin = std::max(key, source.begin);
    const std::int64_t end = std::min(key + count, source.end);
    if (begin >= end) return;
    base_.locate(source.sequence, head, begin, end - begin, rows + (begin - key));
    if (filter_.shows == nullptr) return;
    for (std::int64_t t = begin; t < end; ++t) {
      if (!filter_.shows(filter_.state, token, t)) rows[t - key] = {};
    }
  }

  Base base_;
  TensorView blocks_;
  std::int64_t block_size_;
  const BlockSource* sources_;
  KeyFilter filter_;
};

}  // namespace quire
