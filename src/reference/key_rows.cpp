// SPDX-License-Identifier: Apache-2.0
#include "reference/key_rows.h"

#include "reference/mask.h"
#include "reference/row_codec.h"

namespace quire::reference {

std::vector<std::int64_t> visible_keys(const KvOperandRef& operand, const Mask& mask,
                                       const Token& token, KeyRange range) {
  std::vector<std::int64_t> keys;
  for (std::int64_t key = range.first; key < range.last; ++key) {
    if (!is_visible(mask, token, key)) continue;
    if (operand.row(token.sequence, 0, key).row != nullptr) keys.push_back(key);
  }
  return keys;
}

KeyRows::KeyRows(const KvOperandRef& operand, std::int64_t sequence, std::int64_t head,
                 std::int64_t num_keys, Arithmetic arithmetic, DType dtype) {
  for (std::int64_t key = 0; key < num_keys; ++key) {
    rows_.push_back(decode_row(operand, sequence, head, key));
    for (double& element : rows_.back()) element = intermediate(arithmetic, dtype, element);
  }
}

std::vector<std::span<const double>> KeyRows::select(std::span<const std::int64_t> keys) const {
  std::vector<std::span<const double>> rows;
  for (const std::int64_t key : keys) rows.push_back(row(key));
  return rows;
}

}  // namespace quire::reference
