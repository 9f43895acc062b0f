// SPDX-License-Identifier: Apache-2.0
// The rows that a query attends to: which they are, and what they hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quire/kv_operand.h"
#include "quire/mask.h"
#include "reference/arithmetic.h"
#include "reference/ragged.h"

namespace quire::reference {

// Positions [first, last) of a sequence.
struct KeyRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

// Positions of the range that the mask shows to the token and that have a row, ascending.
std::vector<std::int64_t> visible_keys(const KvOperandRef& operand, const Mask& mask,
                                       const Token& token, KeyRange range);

// The rows of one sequence and KV head, dequantized once. Rows without memory read as zeros.
class KeyRows {
 public:
  KeyRows(const KvOperandRef& operand, std::int64_t sequence, std::int64_t head,
          std::int64_t num_keys, Arithmetic arithmetic, DType dtype);

  std::span<const double> row(std::int64_t key) const {
    return rows_[static_cast<std::size_t>(key)];
  }
  std::vector<std::span<const double>> select(std::span<const std::int64_t> keys) const;

 private:
  std::vector<std::vector<double>> rows_;  // [num_keys][width]
};

}  // namespace quire::reference
