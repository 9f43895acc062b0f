// SPDX-License-Identifier: Apache-2.0
// Any row format, any alignment, in double: a warp per row.
#include "cuda/hopper/rope/angles.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

struct Pair {
  int a;
  int b;
};

__device__ Pair pair_columns(const RopeParams& params, int width, int pair) {
  const int first = params.first_column(width);
  if (params.interleaved) return {first + 2 * pair, first + 2 * pair + 1};
  return {pair, pair + params.rope_dim / 2};
}

struct Rotated {
  double a;
  double b;
};

__device__ Rotated rotate(const RopeParams& params, std::int64_t token, std::int64_t position,
                          int pair, double a, double b) {
  const RopeAngles& angles = params.angles;
  const std::int64_t at = angle_row(angles, token, position, pair) * angles.row_stride +
                          2 * pair * angles.column_stride;
  const double cosine = load_number(angles.freqs, angles.dtype, at);
  const double sine = load_number(angles.freqs, angles.dtype, at + angles.column_stride);
  return {a * cosine - b * sine, a * sine + b * cosine};
}

__device__ void rotate_query(const RopeParams& params, std::int64_t token, std::int64_t position,
                             int head) {
  const std::byte* q = params.q + token * params.q_token_bytes + head * params.q_head_bytes;
  std::byte* out = params.out + token * params.out_token_bytes + head * params.out_head_bytes;
  const int lane = threadIdx.x % kWarp;
  for (int pair = lane; pair < params.rope_dim / 2; pair += kWarp) {
    const auto [a, b] = pair_columns(params, params.head_dim, pair);
    const Rotated turned = rotate(params, token, position, pair, load_number(q, params.q_dtype, a),
                                  load_number(q, params.q_dtype, b));
    store_number(out, params.out_dtype, a, turned.a);
    store_number(out, params.out_dtype, b, turned.b);
  }
  if (params.out == params.q) return;
  const int first = params.interleaved ? 0 : params.rope_dim;
  for (int i = lane; i < params.head_dim - params.rope_dim; i += kWarp) {
    store_number(out, params.out_dtype, first + i, load_number(q, params.q_dtype, first + i));
  }
}

__device__ void rotate_key(const RopeParams& params, std::int64_t token, const TokenPlace& place,
                           int head) {
  std::byte* row = first_row(params.key, place);
  if (row == nullptr) return;
  row += head * params.key.head_stride_bytes;
  const RowFormat& format = params.key.row_format;
  for (int pair = threadIdx.x % kWarp; pair < params.rope_dim / 2; pair += kWarp) {
    const auto [column_a, column_b] = pair_columns(params, format.width(), pair);
    const RowFormat::Column a = format.locate(column_a);
    const RowFormat::Column b = format.locate(column_b);
    const RowPart& part_a = format.parts[a.part];
    const RowPart& part_b = format.parts[b.part];
    const Rotated turned = rotate(params, token, place.position, pair,
                                  load_number(row + part_a.offset_bytes, part_a.dtype, a.index),
                                  load_number(row + part_b.offset_bytes, part_b.dtype, b.index));
    store_number(row + part_a.offset_bytes, part_a.dtype, a.index, turned.a);
    store_number(row + part_b.offset_bytes, part_b.dtype, b.index, turned.b);
  }
}

__global__ void __launch_bounds__(kThreads)
    rotate_general(const __grid_constant__ RopeParams params) {
  const int rows = params.heads + params.key_heads;
  const std::int64_t index = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  const std::int64_t token = index / rows;
  if (token >= params.tokens) return;
  const auto row = static_cast<int>(index - token * rows);
  const TokenPlace place =
      place_of_token(params.row_offsets, params.key.cache_lengths, params.key.batch, token);
  if (!place.exists()) return;
  if (row < params.heads) {
    rotate_query(params, token, place.position, row);
  } else {
    rotate_key(params, token, place, row - params.heads);
  }
}

}  // namespace

void launch_general(const RopeParams& params, cudaStream_t stream) {
  const std::int64_t rows = params.tokens * (params.heads + params.key_heads);
  launch(rotate_general,
         {.grid = dim3(num_blocks(rows * kWarp, kThreads)), .block = dim3(kThreads)}, stream,
         params);
}

}  // namespace quire::cuda::hopper
