// SPDX-License-Identifier: Apache-2.0
// y(row, head) = x(row, head) · W(head)ᵀ for every head, bf16 on the tensor cores: the absorbed
// projections of decode. What the weights' bytes cost is what it costs; rows are few.
#pragma once

#include "cuda/common/mla/head_product.h"
#include "cuda/common/mla/prepare_x.h"

namespace quire::cuda {

struct HeadMatmulParams {
  PlainRows x;  // bf16 [rows, heads, columns], columns a multiple of 128
  // bf16, or e4m3 with scales: then x is rounded to e4m3 too, in groups of 128 columns.
  HeadWeights weights;
  std::int64_t rows = 0;
  const std::int32_t* live_rows = nullptr;  // rows that exist, on the device
  std::int32_t heads = 0;
  std::int32_t columns = 0;
  std::int32_t outputs = 0;
  std::byte* y = nullptr;  // bf16 [rows, heads, outputs]
  std::int64_t y_row_bytes = 0;
  std::int64_t y_head_bytes = 0;
  // The rope part of queries, turned on the way by blocks of its own; y null: there is none.
  RotateQueriesParams rope;
  int block_tiles = 1;  // tiles of outputs that a block takes one after another; set by the launch
};

void launch_head_matmul(const HeadMatmulParams& params, cudaStream_t stream);

}  // namespace quire::cuda
