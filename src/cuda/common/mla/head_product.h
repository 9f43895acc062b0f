// SPDX-License-Identifier: Apache-2.0
// y(row, head) = x(row, head) · W(head)ᵀ for every head, on fp32 multiply-adds: the absorbed
// projections of decode and the up-projection of prefill.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>

#include "cuda/common/rows/row_reader.h"

namespace quire::cuda {

// W [heads, outputs, columns], any strides; fp8: one f32 scale for 128 × 128 numbers.
struct HeadWeights {
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t head_stride = 0;  // elements
  std::int64_t output_stride = 0;
  std::int64_t column_stride = 0;
  const float* scales = nullptr;  // null: none
  std::int64_t scale_head_stride = 0;
  std::int64_t scale_output_stride = 0;  // of a block
  std::int64_t scale_column_stride = 0;
  // Where the blocks of scales cut one matrix of all heads: its row of the first output, and the rows
  // of a head.
  std::int64_t scale_first_row = 0;
  std::int64_t scale_head_rows = 0;
};

// A weight [heads, outputs, columns] with scales of the same rank.
HeadWeights head_weights(const TensorView& weight, const std::optional<TensorView>& scale);

struct HeadProductParams {
  PlainRows x;  // [rows, heads, columns]; head_bytes 0: one x for all heads
  HeadWeights weights;
  std::int64_t rows = 0;
  // Rows that exist, on the device, -1 for none; null: all of them.
  const std::int32_t* live_rows = nullptr;
  std::int32_t heads = 0;
  std::int32_t outputs = 0;
  std::byte* y = nullptr;  // [rows, heads, outputs]
  DType y_dtype = DType::f32;
  std::int64_t y_row_bytes = 0;
  std::int64_t y_head_bytes = 0;
};

void launch_head_product(const HeadProductParams& params, cudaStream_t stream);

}  // namespace quire::cuda
