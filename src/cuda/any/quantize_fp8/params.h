// SPDX-License-Identifier: Apache-2.0
// What the kernels of quantize_fp8 receive.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "quire/ops/quantize_fp8.h"

namespace quire::cuda::any::quantize_fp8 {

struct QuantizeParams {
  const std::byte* x;  // [rows, columns]
  DType x_dtype;
  std::int64_t x_stride_bytes;
  std::byte* out;  // fp8 [rows, columns]
  DType out_dtype;
  std::int64_t out_stride_bytes;
  float* scale;  // [rows, groups]
  std::int64_t scale_row_stride;
  std::int64_t scale_group_stride;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t group_size;
  float largest_amax;  // amax beyond it gets capped_scale: the bound need not be an f32
  float capped_scale;
  ScaleRounding rounding;
};

// Groups of a power of two of vectors, up to a warp; rows of whole groups.
bool takes_lane_groups(const QuantizeParams& params);
// One group per row, up to 16384 columns.
bool takes_whole_rows(const QuantizeParams& params);

void launch_lane_groups(const QuantizeParams& params, cudaStream_t stream);
void launch_whole_rows(const QuantizeParams& params, cudaStream_t stream);
void launch_general(const QuantizeParams& params, cudaStream_t stream);

}  // namespace quire::cuda::any::quantize_fp8
