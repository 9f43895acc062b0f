// SPDX-License-Identifier: Apache-2.0
// K and V rows as they stand in memory, for Attention.
#pragma once

#include "cpu/attention/row_decode.h"
#include "cpu/attention/workspace.h"
#include "cpu/simd/carver.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

template <typename Element> class StoredRows {
 public:
  StoredRows(const AttentionShape& shape, Carver& carver)
      : key_width_(shape.key_width), value_width_(shape.value_width) {
    keys_ = carver.take<Element>(kSegment * key_width_);
    values_ = carver.take<Element>(kSegment * value_width_);
  }
  void set_source(const KeySource& source) { source_ = &source; }

  void load(std::int64_t head, std::int64_t first, int count, const Element** keys,
            const Element** values) {
    RowAddress key_addresses[kSegment];
    RowAddress value_addresses[kSegment];
    source_->keys.operand->locate(source_->sequence, head, first, count, key_addresses);
    load_rows(source_->keys.plan, key_addresses, count, key_width_, keys_, keys);
    if (source_->shared_rows) {
      for (int i = 0; i < count; ++i) values[i] = keys[i];
    } else {
      source_->values.operand->locate(source_->sequence, head, first, count, value_addresses);
      load_rows(source_->values.plan, value_addresses, count, value_width_, values_, values);
    }
  }

 private:
  std::int64_t key_width_;
  std::int64_t value_width_;
  const KeySource* source_ = nullptr;
  Element* keys_;    // [kSegment, key_width]
  Element* values_;  // [kSegment, value_width]
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
