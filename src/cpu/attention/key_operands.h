// SPDX-License-Identifier: Apache-2.0
// K and V of a call, as the items of its sequences take them.
#pragma once

#include <cstdint>
#include <optional>

#include "cpu/attention/item.h"
#include "cpu/runtime/row_encoding.h"
#include "quire/kv_operand.h"

namespace quire::cpu {

// Without values, V is the first columns of the K row. The operands outlive this object.
class KeyOperands {
 public:
  KeyOperands(const KvOperandRef& keys, const std::optional<KvOperandRef>& values)
      : keys_(keys), values_(values), key_encoding_(keys.layout()) {
    if (values_) value_encoding_.emplace(values_->layout());
  }

  KeySource source(std::int64_t sequence) const {
    const SideSource keys{.operand = &keys_, .plan = key_encoding_.plan()};
    if (!values_) return {.keys = keys, .values = keys, .sequence = sequence, .shared_rows = true};
    return {.keys = keys,
            .values = {.operand = &*values_, .plan = value_encoding_->plan()},
            .sequence = sequence,
            .shared_rows = false};
  }

 private:
  KvOperandRef keys_;
  std::optional<KvOperandRef> values_;
  RowEncoding key_encoding_;
  std::optional<RowEncoding> value_encoding_{};
};

}  // namespace quire::cpu
