// SPDX-License-Identifier: Apache-2.0
// Memory as a matrix of rows: all that a tile descriptor needs to know of an operand. Page tables
// and lengths are the operand's.
#pragma once

#include <cstdint>

#include "quire/dtype.h"
#include "quire/export.h"

namespace quire {

struct KvLayerView;
struct TensorView;
// The row of a key without memory. No operand has a matrix of as many rows, so a copy from here
// (and from any offset within a tile behind it) lies outside and fills zeros.
inline constexpr std::uint32_t kUnassignedRow = 1u << 30;

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

// [num_pages, page_size, num_heads, row_width] at base + base_offset_bytes; columns are contiguous.
// A page id of num_pages or more lies outside of the matrix: a copy from there brings zeros.
struct PageMatrix {
  DType dtype = DType::bf16;
  std::int64_t num_pages = 0;
  std::int64_t page_size = 0;  // rows
  std::int64_t num_heads = 1;
  std::int64_t row_width = 0;
  std::int64_t page_stride_bytes = 0;
  std::int64_t row_stride_bytes = 0;
  std::int64_t head_stride_bytes = 0;
  std::int64_t base_offset_bytes = 0;

  bool operator==(const PageMatrix&) const = default;
};

// A tensor [rows, width], of one head, or [rows, heads, width]. Throws Error for other ranks and
// where columns are not contiguous.
QUIRE_API RowMatrix row_matrix_of(const TensorView& tensor);

// The pages of a layer. A row is `width` columns of `dtype` from its first byte on, whatever its
// format says: one that is not uniform has no dtype of its own.
QUIRE_API PageMatrix page_matrix_of(const KvLayerView& view, DType dtype, std::int64_t width);

// `width` columns of another dtype that begin first_byte bytes into each row. The rows keep their
// strides, so that a copy never runs from one row's window into the next row. Throws Error where
// the window leaves the row.
QUIRE_API RowMatrix columns_as(const RowMatrix& matrix, DType dtype, std::int64_t first_byte,
                               std::int64_t width);
QUIRE_API PageMatrix columns_as(const PageMatrix& matrix, DType dtype, std::int64_t first_byte,
                                std::int64_t width);

// [num_heads, num_rows] scales at the scales' base, one per row; rows are contiguous.
struct ScaleMatrix {
  DType dtype = DType::f32;
  std::int64_t num_heads = 1;
  std::int64_t num_rows = 0;
  std::int64_t head_stride_bytes = 0;

  bool operator==(const ScaleMatrix&) const = default;
};

// [num_pages, page_size] scales at the scales' base, one per row of a cache of one head; those of a
// page are contiguous.
struct PageScaleMatrix {
  DType dtype = DType::f32;
  std::int64_t num_pages = 0;
  std::int64_t page_size = 0;
  std::int64_t page_stride_bytes = 0;

  bool operator==(const PageScaleMatrix&) const = default;
};

// Throws Error where the layer has more than one scale per row, or gaps between a page's scales.
QUIRE_API PageScaleMatrix page_scale_matrix_of(const KvLayerView& view);

}  // namespace quire
