// SPDX-License-Identifier: Apache-2.0
// A dense K or V [batch, length, heads, row] as an operand: all sequences have `length` keys.
#pragma once

#include <cstdint>

#include "quire/export.h"
#include "quire/row_runs.h"

namespace quire {

class QUIRE_API ContiguousOperand {
 public:
  // values [batch, length, heads, row]. Throws Error unless they are.
  explicit ContiguousOperand(const TensorView& values, const RowExtras& extras = {});

  RowLayout layout() const { return rows_.layout; }
  KvHeads heads() const { return rows_.heads; }
  // The new tokens are in the tensor already.
  std::int64_t num_keys(std::int64_t /*sequence*/, std::int64_t /*new_tokens*/) const {
    return length_;
  }
  // Aligned at the end: the last new token is the last key.
  std::int64_t first_position(std::int64_t sequence, std::int64_t new_tokens) const {
    return num_keys(sequence, new_tokens) - new_tokens;
  }
  void locate(std::int64_t sequence, std::int64_t head, std::int64_t first, std::int64_t count,
              RowAddress* rows) const;
  // row = sequence · length + key. Throws Error unless sequences follow each other without a gap.
  RowMatrix row_matrix() const;

 private:
  RowRuns rows_;
  std::int64_t batch_;
  std::int64_t length_;
  std::int64_t sequence_stride_bytes_;
  std::int64_t plane_sequence_stride_bytes_ = 0;
};

}  // namespace quire
