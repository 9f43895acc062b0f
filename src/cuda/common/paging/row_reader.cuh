// SPDX-License-Identifier: Apache-2.0
// Rows of a cache in any format, dequantized to fp32.
#pragma once

#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/paging/row_reader.h"
#include "cuda/common/rows/scale_number.cuh"

namespace quire::cuda {

// Where one token's row of one head stands.
struct RowPlace {
  const std::byte* row = nullptr;     // null: no page
  const std::byte* scales = nullptr;  // slot 0 in the scales tensor; null: none, or no page there

  __device__ bool exists() const { return row != nullptr; }
};

__device__ inline RowPlace place_row(const KvLayerView& view, std::int64_t sequence,
                                     std::int64_t token, std::int64_t head) {
  if (view.first_rows != nullptr) token += view.first_rows[sequence];
  return {.row = row_of(view, sequence, token, head),
          .scales = scale_of_row(view, sequence, token, head)};
}

// The scale of a column; `index` is its place within the part.
__device__ inline float scale_of(const KvLayerView& view, const RowPart& part,
                                 const RowPlace& place, int column, int index) {
  if (part.scale_source == ScaleSource::none) return 1.0f;
  if (part.scale_source == ScaleSource::in_row) {
    return load_row_scale_once(place.row + part.scale_offset_bytes, part.scale_dtype,
                               index / part.granularity);
  }
  if (place.scales == nullptr) return 0.0f;
  return load_scale_once(place.scales, view.scales.dtype,
                         column / part.granularity * view.scales.slot_stride);
}

static __device__ __noinline__ float load_column(const KvLayerView& view, const RowPlace& place,
                                                 int column) {
  const RowFormat::Column at = view.row_format.locate(column);
  const RowPart& part = view.row_format.parts[at.part];
  return load_row_once(place.row + part.offset_bytes, part.dtype, at.index) *
         scale_of(view, part, place, column, at.index);
}

__device__ inline void set_zero(float (&values)[kVec8]) {
#pragma unroll
  for (float& value : values) value = 0.0f;
}

// Columns [column, column + 8) of a row that exists and is read eight columns at a time.
__device__ inline void load_scaled_vec8(const KvLayerView& view, const RowPlace& place, int column,
                                        float (&values)[kVec8]) {
  const RowFormat::Column at = view.row_format.locate(column);
  const RowPart& part = view.row_format.parts[at.part];
  load_vec8(place.row + part.offset_bytes + std::int64_t{at.index} * (bits(part.dtype) / 8),
            part.dtype, values);
  if (part.scale_source == ScaleSource::none) return;
  const float scale = scale_of(view, part, place, column, at.index);
#pragma unroll
  for (float& value : values) value *= scale;
}

// Columns [column, column + 8) of a row, column a multiple of 8; zeros from `width` on and without a
// page.
__device__ inline void load_columns(const RowReader& reader, const RowPlace& place, int column,
                                    int width, float (&values)[kVec8]) {
  const KvLayerView& view = reader.view;
  if (!place.exists() || column >= width) return set_zero(values);
  if (reader.reads_vec8 && column + kVec8 <= width) {
    return load_scaled_vec8(view, place, column, values);
  }
#pragma unroll
  for (int i = 0; i < kVec8; ++i) {
    values[i] = column + i < width ? load_column(view, place, column + i) : 0.0f;
  }
}

// The same of a plain row; null: zeros.
__device__ inline void load_columns(const PlainRows& rows, const std::byte* row, int column,
                                    float (&values)[kVec8]) {
  if (row == nullptr || column >= rows.width) return set_zero(values);
  if (rows.reads_vec8) {
    return load_vec8(row + std::int64_t{column} * (bits(rows.dtype) / 8), rows.dtype, values);
  }
#pragma unroll
  for (int i = 0; i < kVec8; ++i) {
    values[i] = column + i < rows.width ? load_one(row, rows.dtype, column + i) : 0.0f;
  }
}

}  // namespace quire::cuda
