// SPDX-License-Identifier: Apache-2.0
// What stands before a product with latent weights: rows as f32, quantized as fp8 weights ask for
// it, and the rope part of queries rotated.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/common/mla/finish_rows.h"
#include "cuda/common/rows/row_reader.h"

namespace quire::cuda {

// Columns [0, width) of plain rows [tokens, heads, ..] into f32 [tokens, heads, width], rounded to
// `fp8` in groups of 128 and scaled back where that is an fp8 type.
struct QuantizeRowsParams {
  PlainRows x;
  std::int64_t tokens = 0;
  std::int32_t heads = 0;
  std::int32_t width = 0;
  DType fp8 = DType::f32;
  float* y = nullptr;
  std::int64_t y_token_stride = 0;  // elements
  std::int64_t y_head_stride = 0;
};

void launch_quantize_rows(const QuantizeRowsParams& params, cudaStream_t stream);

// The last `rope` columns of q [tokens, heads, ..], rotated, to the end of rows of y.
struct RotateQueriesParams {
  PlainRows q;
  std::int64_t tokens = 0;
  std::int32_t heads = 0;
  std::int32_t rope = 0;
  LatentAngles angles;
  const std::uint32_t* row_offsets = nullptr;
  const std::uint32_t* cache_lengths = nullptr;
  std::int64_t batch = 0;
  std::byte* y = nullptr;  // may be q itself
  DType y_dtype = DType::f32;
  std::int32_t y_width = 0;
  std::int64_t y_token_bytes = 0;
  std::int64_t y_head_bytes = 0;
};

void launch_rotate_queries(const RotateQueriesParams& params, cudaStream_t stream);

}  // namespace quire::cuda
