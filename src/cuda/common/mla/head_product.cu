// SPDX-License-Identifier: Apache-2.0
// Tiles of 64 rows × 64 outputs of one head, 32 columns at a time; 16 sums a thread.

#include "cuda/common/mla/finish_row.cuh"
#include "cuda/common/mla/fp8_group.cuh"
#include "cuda/common/mla/head_product.h"
#include "cuda/common/paging/row_reader.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kTile = 64;
constexpr int kChunk = 32;
constexpr int kGroups = 16;  // threads along either side of the tile
constexpr int kSums = kTile / kGroups;
constexpr int kPad = 4;
constexpr int kScaleBlock = 128;

struct HeadTileShared {
  float x[kTile][kChunk + kPad];
  float w[kTile][kChunk + kPad];
};

__device__ float load_weight(const HeadWeights& weights, int head, int output, int column) {
  const float value = load_one(
      weights.data, weights.dtype,
      head * weights.head_stride + output * weights.output_stride + column * weights.column_stride);
  if (weights.scales == nullptr) return value;
  const std::int64_t row = weights.scale_first_row + head * weights.scale_head_rows + output;
  return value * weights.scales[head * weights.scale_head_stride +
                                row / kScaleBlock * weights.scale_output_stride +
                                column / kScaleBlock * weights.scale_column_stride];
}

// Neighbouring threads read along whichever side is contiguous.
__device__ void load_weights(const HeadProductParams& params, int head, int first_output,
                             int first_column, HeadTileShared& shared) {
  const bool by_column = params.weights.column_stride <= params.weights.output_stride;
#pragma unroll 4
  for (int i = threadIdx.x; i < kTile * kChunk; i += kThreads) {
    const int output = by_column ? i / kChunk : i % kTile;
    const int column = by_column ? i % kChunk : i / kTile;
    const bool exists =
        first_output + output < params.outputs && first_column + column < params.x.width;
    shared.w[output][column] =
        exists ? load_weight(params.weights, head, first_output + output, first_column + column)
               : 0.0f;
  }
}

__device__ void load_x(const HeadProductParams& params, int head, std::int64_t first_row,
                       std::int64_t num_rows, int first_column, HeadTileShared& shared) {
  constexpr int kRuns = kChunk / kVec8;
  const int row = threadIdx.x / kRuns;
  const int run = threadIdx.x % kRuns * kVec8;
  const std::byte* x =
      params.x.data + (first_row + row) * params.x.token_bytes + head * params.x.head_bytes;
  float values[kVec8];
  load_columns(params.x, first_row + row < num_rows ? x : nullptr, first_column + run, values);
#pragma unroll
  for (int i = 0; i < kVec8; ++i) shared.x[row][run + i] = values[i];
}
static_assert(kTile * kChunk / kVec8 == kThreads);

// A chunk's sums are taken for themselves: rounding errors grow with the chunks, not with the columns.
__device__ void multiply(const HeadTileShared& shared, int row_group, int output_group,
                         float (&sums)[kSums][kSums]) {
  float parts[kSums][kSums] = {};
#pragma unroll
  for (int c = 0; c < kChunk; c += 4) {
    float4 x[kSums];
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      x[i] = *reinterpret_cast<const float4*>(&shared.x[row_group + i * kGroups][c]);
    }
#pragma unroll
    for (int j = 0; j < kSums; ++j) {
      const float4 w = *reinterpret_cast<const float4*>(&shared.w[output_group + j * kGroups][c]);
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        float& part = parts[i][j];
        part = fmaf(x[i].w, w.w, fmaf(x[i].z, w.z, fmaf(x[i].y, w.y, fmaf(x[i].x, w.x, part))));
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
#pragma unroll
    for (int j = 0; j < kSums; ++j) sums[i][j] += parts[i][j];
  }
}

__global__ void __launch_bounds__(kThreads)
    multiply_heads(const __grid_constant__ HeadProductParams params) {
  __shared__ HeadTileShared shared;
  const std::int64_t first_row = std::int64_t{blockIdx.x} * kTile;
  const std::int64_t num_rows =
      params.live_rows == nullptr ? params.rows : min(params.rows, std::int64_t{*params.live_rows});
  if (first_row >= num_rows) return;
  const int first_output = static_cast<int>(blockIdx.y) * kTile;
  const int head = static_cast<int>(blockIdx.z);
  const int output_group = static_cast<int>(threadIdx.x) % kGroups;
  const int row_group = static_cast<int>(threadIdx.x) / kGroups;
  float sums[kSums][kSums] = {};
  for (int column = 0; column < params.x.width; column += kChunk) {
    __syncthreads();
    load_weights(params, head, first_output, column, shared);
    load_x(params, head, first_row, num_rows, column, shared);
    __syncthreads();
    multiply(shared, row_group, output_group, sums);
  }
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const std::int64_t row = first_row + row_group + i * kGroups;
    if (row >= num_rows) continue;
    std::byte* y = params.y + row * params.y_row_bytes + head * params.y_head_bytes;
#pragma unroll
    for (int j = 0; j < kSums; ++j) {
      const int output = first_output + output_group + j * kGroups;
      if (output < params.outputs) store_one(y, params.y_dtype, output, sums[i][j]);
    }
  }
}

}  // namespace

HeadWeights head_weights(const TensorView& weight, const std::optional<TensorView>& scale) {
  HeadWeights weights{.data = weight.as<const std::byte>(),
                      .dtype = weight.dtype,
                      .head_stride = weight.strides[0],
                      .output_stride = weight.strides[1],
                      .column_stride = weight.strides[2]};
  if (scale.has_value()) {
    weights.scales = scale->as<const float>();
    weights.scale_head_stride = scale->strides[0];
    weights.scale_output_stride = scale->strides[1];
    weights.scale_column_stride = scale->strides[2];
  }
  return weights;
}

HeadProductParams decode_product(const MlaDecodeArgs& args, const PlainRows& x,
                                 const TensorView& weight, const std::optional<TensorView>& scale,
                                 const TensorView& y) {
  return {.x = x,
          .weights = head_weights(weight, scale),
          .rows = args.q.shape[0],
          .live_rows = args.row_offsets.as<const std::int32_t>() + args.cache.batch(),
          .heads = static_cast<std::int32_t>(args.q.shape[1]),
          .outputs = static_cast<std::int32_t>(weight.shape[1]),
          .y = static_cast<std::byte*>(y.data),
          .y_dtype = y.dtype,
          .y_row_bytes = bytes_for(y.dtype, y.strides[0]),
          .y_head_bytes = bytes_for(y.dtype, y.strides[1])};
}

void launch_head_product(const HeadProductParams& params, cudaStream_t stream) {
  launch(multiply_heads,
         {.grid = dim3(num_blocks(params.rows, kTile), num_blocks(params.outputs, kTile),
                       static_cast<unsigned>(params.heads)),
          .block = dim3(kThreads)},
         stream, params);
}

namespace {

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
