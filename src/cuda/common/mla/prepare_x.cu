// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/mla/head_product.h"

#include "cuda/common/mla/finish_row.cuh"
#include "cuda/common/mla/fp8_group.cuh"
#include "cuda/common/paging/row_reader.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

// A warp per group of 128 columns.
__global__ void __launch_bounds__(kThreads)
    quantize_rows(const __grid_constant__ QuantizeRowsParams params) {
  const int groups = (params.width + kFp8Group - 1) / kFp8Group;
  const std::int64_t index = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  const std::int64_t row = index / groups;
  const std::int64_t token = row / params.heads;
  if (token >= params.tokens) return;
  const std::int64_t head = row % params.heads;
  const int first = static_cast<int>(index % groups) * kFp8Group;
  const std::byte* x = params.x.data + token * params.x.token_bytes + head * params.x.head_bytes;
  float* y = params.y + token * params.y_token_stride + head * params.y_head_stride;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float values[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int column = first + lane + i * kWarp;
    values[i] = column < params.width ? load_one(x, params.x.dtype, column) : 0.0f;
  }
  if (is_fp8(params.fp8)) quantize_group(params.fp8, values);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int column = first + lane + i * kWarp;
    if (column < params.width) y[column] = values[i];
  }
}

// A thread per pair.
__global__ void __launch_bounds__(kThreads)
    rotate_queries(const __grid_constant__ RotateQueriesParams params) {
  const int pairs = params.rope / 2;
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t row = index / pairs;
  const std::int64_t token = row / params.heads;
  if (token >= params.tokens) return;
  const TokenPlace place =
      place_of_token(params.row_offsets, params.cache_lengths, params.batch, token);
  if (!place.exists()) return;
  const std::int64_t head = row % params.heads;
  const auto pair = static_cast<int>(index % pairs);
  rotate_query(params, place, token, head, pair);
}

}  // namespace

void launch_quantize_rows(const QuantizeRowsParams& params, cudaStream_t stream) {
  const std::int64_t groups = (params.width + kFp8Group - 1) / kFp8Group;
  launch(quantize_rows,
         {.grid = dim3(num_blocks(params.tokens * params.heads * groups * kWarp, kThreads)),
          .block = dim3(kThreads)},
         stream, params);
}

void launch_rotate_queries(const RotateQueriesParams& params, cudaStream_t stream) {
  launch(rotate_queries,
         {.grid = dim3(num_blocks(params.tokens * params.heads * (params.rope / 2), kThreads)),
          .block = dim3(kThreads)},
         stream, params);
}

}  // namespace quire::cuda
