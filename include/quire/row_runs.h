// SPDX-License-Identifier: Apache-2.0
// Rows without pages: what the ragged and the contiguous operand share. A sequence is one run of
// rows at one stride.
#pragma once

#include <cstdint>
#include <optional>

#include "quire/export.h"
#include "quire/kv_operand.h"
#include "quire/tensor_view.h"

namespace quire {

// What else rows may have beside their values.
struct RowExtras {
  std::optional<TensorView> scales{};  // the values' shape with slots for columns; any strides
  std::optional<RowFormat> format{};   // absent: uniform, or scaled where scales are given
};

struct QUIRE_API RowRuns {
  std::byte* data = nullptr;
  std::byte* planes = nullptr;  // null: no scales
  RowLayout layout{};
  KvHeads heads{};
  std::int64_t row_stride_bytes = 0;
  std::int64_t plane_stride_bytes = 0;

  // values [..., rows, heads, row] with contiguous rows. Throws Error in the name of `operand`
  // unless scales and format fit them.
  static RowRuns of(const char* operand, const TensorView& values, const RowExtras& extras);

  // Keys [first, first + count) of a run of num_keys that starts so many bytes after data and planes.
  struct Run {
    std::int64_t offset_bytes;
    std::int64_t plane_offset_bytes;
    std::int64_t num_keys;
  };
  void locate(const Run& run, std::int64_t head, std::int64_t first, std::int64_t count,
              RowAddress* rows) const;

  // Throws Error in the name of `operand` unless there are less than kUnassignedRow.
  RowMatrix row_matrix(const char* operand, std::int64_t num_rows) const;
};

}  // namespace quire
