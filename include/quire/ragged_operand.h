// SPDX-License-Identifier: Apache-2.0
// A ragged K or V [tokens, heads, row] as an operand: sequence b owns the rows [row_offsets[b],
// row_offsets[b + 1]), which are all of its keys.
#pragma once

#include <cstdint>

#include "quire/export.h"
#include "quire/row_runs.h"

namespace quire {

class QUIRE_API RaggedOperand {
 public:
  // values [tokens, heads, row], row_offsets u32 [batch + 1]. Throws Error unless they are.
  RaggedOperand(const TensorView& values, const TensorView& row_offsets,
                const RowExtras& extras = {});

  RowLayout layout() const { return rows_.layout; }
  KvHeads heads() const { return rows_.heads; }
  // The new tokens are in the tensor already.
  std::int64_t num_keys(std::int64_t sequence, std::int64_t /*new_tokens*/) const {
    return std::int64_t{offsets_[sequence + 1]} - offsets_[sequence];
  }
  // Aligned at the end: the last new token is the last key.
  std::int64_t first_position(std::int64_t sequence, std::int64_t new_tokens) const {
    return num_keys(sequence, new_tokens) - new_tokens;
  }
  void locate(std::int64_t sequence, std::int64_t head, std::int64_t first, std::int64_t count,
              RowAddress* rows) const;
  // row = row_offsets[sequence] + key
  RowMatrix row_matrix() const;

 private:
  RowRuns rows_;
  const std::uint32_t* offsets_;
  std::int64_t num_rows_;
};

}  // namespace quire
