// SPDX-License-Identifier: Apache-2.0
// K or V of one layer as a kernel takes it, whatever the memory behind it. A kernel asks where the
// rows of some keys stand and how their bytes are numbers; a new kind of memory is a new operand,
// not a new kernel.
//
//   PagedKvOperand      pages of a cache               paged_kv_operand.h
//   SlottedKvOperand    rows of a pool, by slots       slotted_kv_operand.h
//   RaggedOperand       [tokens, heads, row]           ragged_operand.h
//   ContiguousOperand   [batch, length, heads, row]    contiguous_operand.h
//   GatheredOperand     keys of another, by index      gathered_operand.h
//   BlockedOperand      keys of another, by blocks     blocked_operand.h
//
// Operands are trivially copyable views. Positions and byte offsets are 64-bit.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "quire/row_layout.h"
#include "quire/row_matrix.h"

namespace quire {

// The heads of a row: how many there are, and how far apart.
struct KvHeads {
  std::int64_t count = 0;
  std::int64_t row_stride_bytes = 0;
  std::int64_t plane_stride_bytes = 0;  // 0: heads share their scales, or have none

  bool operator==(const KvHeads&) const = default;
};

template <typename T>
concept KvOperand = std::is_trivially_copyable_v<T> &&
    requires(const T operand, std::int64_t sequence, std::int64_t head, std::int64_t first,
             std::int64_t count, std::int64_t new_tokens, RowAddress* rows) {
  { operand.layout() } -> std::convertible_to<RowLayout>;
  { operand.heads() } -> std::same_as<KvHeads>;
  // Keys that a call sees in a sequence to which it adds new_tokens. As a rule the new tokens are the
  // last of them.
  { operand.num_keys(sequence, new_tokens) } -> std::same_as<std::int64_t>;
  // Where the first new token stands among the keys, which masks and ALiBi ask for.
  { operand.first_position(sequence, new_tokens) } -> std::same_as<std::int64_t>;
  // Rows [count] of the keys [first, first + count). A key without memory has a null row; its scales
  // are looked up on their own, and may exist without it.
  { operand.locate(sequence, head, first, count, rows) } -> std::same_as<void>;
};

// An operand whose rows a tile descriptor can address (tile_builders.h).
template <typename T>
concept KvDescriptors = requires(const T operand) {
  { operand.row_matrix() } -> std::same_as<RowMatrix>;
};

// Any operand, by reference: what code takes that is compiled once for all of them. The operand
// outlives it.
class KvOperandRef {
 public:
  template <typename Operand>
  requires(KvOperand<Operand> && !std::same_as<Operand, KvOperandRef>)
      // NOLINTNEXTLINE(google-explicit-constructor)
      KvOperandRef(const Operand& operand)
      : operand_(&operand),
        layout_(operand.layout()),
        heads_(operand.heads()),
        num_keys_([](const void* state, std::int64_t sequence, std::int64_t new_tokens) {
          return static_cast<const Operand*>(state)->num_keys(sequence, new_tokens);
        }),
        first_position_([](const void* state, std::int64_t sequence, std::int64_t new_tokens) {
          return static_cast<const Operand*>(state)->first_position(sequence, new_tokens);
        }),
        locate_([](const void* state, std::int64_t sequence, std::int64_t head, std::int64_t first,
                   std::int64_t count, RowAddress* rows) {
          static_cast<const Operand*>(state)->locate(sequence, head, first, count, rows);
        }) {}

  const RowLayout& layout() const { return layout_; }
  const KvHeads& heads() const { return heads_; }
  std::int64_t num_keys(std::int64_t sequence, std::int64_t new_tokens) const {
    return num_keys_(operand_, sequence, new_tokens);
  }
  std::int64_t first_position(std::int64_t sequence, std::int64_t new_tokens) const {
    return first_position_(operand_, sequence, new_tokens);
  }
  void locate(std::int64_t sequence, std::int64_t head, std::int64_t first, std::int64_t count,
              RowAddress* rows) const {
    locate_(operand_, sequence, head, first, count, rows);
  }
  RowAddress row(std::int64_t sequence, std::int64_t head, std::int64_t key) const {
    RowAddress address;
    locate(sequence, head, key, 1, &address);
    return address;
  }

 private:
  using NumKeys = std::int64_t (*)(const void* state, std::int64_t sequence,
                                   std::int64_t new_tokens);
  using Locate = void (*)(const void* state, std::int64_t sequence, std::int64_t head,
                          std::int64_t first, std::int64_t count, RowAddress* rows);

  const void* operand_;
  RowLayout layout_;
  KvHeads heads_;
  NumKeys num_keys_;
  NumKeys first_position_;
  Locate locate_;
};

}  // namespace quire
