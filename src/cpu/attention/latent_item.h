// SPDX-License-Identifier: Apache-2.0
// The steps of the MLA ops around attention, as kernels see them: new rows finished, queries
// rotated, one head's projection. Plain data, made by drivers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/runtime/row_plan.h"
#include "quire/dtype.h"

namespace quire::cpu {

// One new token: its raw latent + rope values become its cache row.
struct LatentRow {
  const std::byte* raw;    // [latent + rope] of raw_dtype; null: the row itself holds them
  std::byte* row;          // null: no page, nothing to do
  std::byte* plane;        // slot 0 of its scales, or null
  const std::byte* freqs;  // [rope] cos, sin of its position
};

struct FinishItem {
  const LatentRow* rows;
  std::int64_t num_rows;
  RowPlan plan;
  DType raw_dtype;
  std::int64_t latent;
  std::int64_t rope;
  const std::byte* gamma;  // [latent]
  DType gamma_dtype;
  DType freqs_dtype;
  double epsilon;
};

// Rows whose last `rope` columns are rotated; the `copied` columns before them are taken along.
struct RotateItem {
  const std::byte* q;  // the first copied column of head 0
  std::byte* out;      // the same place
  DType q_dtype;
  DType out_dtype;
  std::int64_t q_head_stride;  // bytes
  std::int64_t out_head_stride;
  std::int64_t num_heads;
  std::int64_t copied;
  std::int64_t rope;
  const std::byte* freqs;  // [rope]
  DType freqs_dtype;
};

// out [num_rows, num_columns] = x [num_rows, depth] · weight [num_columns, depth]ᵀ.
// fp8 weights: x is quantized in blocks of 128 columns first, and blocks of the weight have scales.
struct ProjectionItem {
  const std::byte* x;
  DType x_dtype;
  std::int64_t x_stride;  // bytes between rows; columns are dense
  std::int64_t num_rows;
  std::int64_t depth;
  const std::byte* weight;
  DType weight_dtype;
  std::int64_t column_stride;  // elements
  std::int64_t depth_stride;
  std::int64_t num_columns;
  const float* scale;  // of the block (0, 0); null: none
  std::int64_t scale_column_stride;
  std::int64_t scale_depth_stride;
  std::byte* out;
  DType out_dtype;
  std::int64_t out_stride;  // bytes between rows
};

}  // namespace quire::cpu
