// SPDX-License-Identifier: Apache-2.0
// K or V memory as a matrix of rows: all that a tile descriptor needs to know of an operand.
#pragma once

#include <cstdint>

#include "quire/dtype.h"
#include "quire/export.h"

namespace quire {

// [num_rows, num_heads, row_width] at base + base_offset_bytes; columns are contiguous.
struct RowMatrix {
  DType dtype = DType::bf16;
  std::int64_t num_rows = 0;
  std::int64_t num_heads = 1;
  std::int64_t row_width = 0;
  std::int64_t row_stride_bytes = 0;
  std::int64_t head_stride_bytes = 0;
  std::int64_t base_offset_bytes = 0;

  bool operator==(const RowMatrix&) const = default;
};

// `width` columns of another dtype that begin first_byte bytes into each row. The rows keep their
// strides, so that a copy never runs from one row's window into the next row. Throws Error where
// the window leaves the row.
QUIRE_API RowMatrix columns_as(const RowMatrix& matrix, DType dtype, std::int64_t first_byte,
                               std::int64_t width);

// [num_heads, num_rows] scales at the scales' base, one per row; rows are contiguous.
struct ScaleMatrix {
  DType dtype = DType::f32;
  std::int64_t num_heads = 1;
  std::int64_t num_rows = 0;
  std::int64_t head_stride_bytes = 0;

  bool operator==(const ScaleMatrix&) const = default;
};

}  // namespace quire
