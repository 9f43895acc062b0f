// SPDX-License-Identifier: Apache-2.0
// Any row that fits into shared memory, any alignment, any pairs: a warp per row.
#include "cuda/any/index_rows/quantize_row.cuh"
#include "cuda/common/rows/number.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda::any::index_rows {
namespace {

constexpr int kWarp = 32;

// Takes the mean of the warp's row off it, as f32 has it.
__device__ void subtract_mean(float* row, int columns) {
  const float share = 1.0f / static_cast<float>(columns);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += kWarp) sum = fmaf(row[i], share, sum);
  const float mean = warp_sum(sum);
  for (int i = threadIdx.x; i < columns; i += kWarp) row[i] -= mean;
}

__device__ void normalize(const IndexRowParams& params, float* row) {
  const auto columns = static_cast<float>(params.columns);
  // Twice: f32 rounds the mean of numbers that lie close together by more than they differ, and the division by their
  // deviation would make that error a large one. The second mean is that error.
  subtract_mean(row, params.columns);
  subtract_mean(row, params.columns);
  float squares = 0.0f;
  for (int i = threadIdx.x; i < params.columns; i += kWarp) {
    squares = fmaf(row[i], row[i], squares);
  }
  squares = warp_sum(squares);
  float factor = rsqrtf(squares / columns + params.epsilon);
  if (isinf(squares)) {  // numbers scaled down, for which ε is nothing
    constexpr float kDown = 0x1p-70f;
    squares = 0.0f;
    for (int i = threadIdx.x; i < params.columns; i += kWarp) {
      squares = fmaf(row[i] * kDown, row[i] * kDown, squares);
    }
    factor = rsqrtf(warp_sum(squares) / columns) * kDown;
  }
  for (int i = threadIdx.x; i < params.columns; i += kWarp) {
    const float weight = load_one(params.norm_weight.data, params.norm_weight.dtype, i);
    const float bias = load_one(params.norm_bias.data, params.norm_bias.dtype, i);
    row[i] = fmaf(row[i] * factor, weight, bias);
  }
  __syncwarp();
}

__device__ void rotate(const IndexRowParams& params, std::int64_t position, float* row) {
  const int half = params.rope_dim / 2;
  const std::int64_t angles =
      (position < params.max_pos ? position : params.max_pos - 1) * params.freqs_stride;
  for (int j = threadIdx.x; j < half; j += kWarp) {
    const float cosine = load_one(params.freqs, params.freqs_dtype, angles + 2 * j);
    const float sine = load_one(params.freqs, params.freqs_dtype, angles + 2 * j + 1);
    rotate_pair(row[params.interleaved ? 2 * j : j], row[params.interleaved ? 2 * j + 1 : j + half],
                cosine, sine);
  }
  __syncwarp();
}

__device__ void hadamard(const IndexRowParams& params, float* row) {
  for (int distance = 1; distance < params.columns; distance *= 2) {
    for (int pair = threadIdx.x; pair < params.columns / 2; pair += kWarp) {
      const int i = (pair & ~(distance - 1)) * 2 + (pair & (distance - 1));
      const float a = row[i];
      const float b = row[i + distance];
      row[i] = a + b;
      row[i + distance] = a - b;
    }
    __syncwarp();
  }
}

// Rows of any alignment: the scale among them has none either.
template <typename Target>
__device__ void store_scale_anywhere(const Target& target, const TokenTarget& token, int head,
                                     float scale) {
  if (token.scale == nullptr || is_number_aligned(token.scale, DType::f32)) {
    return store_scale(target, token, head, scale);
  }
  store_unaligned(token.scale, DType::f32, scale);
}

// A scale of 0 makes 0 of every number; NaN stays.
__device__ float divide_by(float value, float scale) {
  if (scale == 0.0f) return isnan(value) ? value : 0.0f;
  return __fdiv_rn(value, scale);
}

template <typename Target>
__global__ void quantize_rows_general(const __grid_constant__ IndexRowParams params,
                                      const __grid_constant__ Target target) {
  extern __shared__ float row[];  // [columns]
  const std::int64_t token = params.heads.quotient_of(blockIdx.x);
  const auto head = static_cast<int>(blockIdx.x - token * params.heads.value());
  const TokenTarget place = locate(
      target, place_of_token(params.row_offsets, params.cache_lengths, params.batch, token), token);
  if (place.position < 0) return;
  const std::byte* x = params.x + token * params.token_bytes + head * params.head_bytes;
  for (int i = threadIdx.x; i < params.columns; i += kWarp) row[i] = load_one(x, params.x_dtype, i);
  __syncwarp();
  if (params.norm_weight.data != nullptr) normalize(params, row);
  if (params.freqs != nullptr) rotate(params, place.position, row);
  if (params.hadamard) hadamard(params, row);

  float amax = 0.0f;
  for (int i = threadIdx.x; i < params.columns; i += kWarp) {
    row[i] *= params.hadamard_factor;
    amax = fmaxf(amax, fabsf(row[i]));
  }
  const float scale = row_scale(params.rounding, warp_max(amax));
  std::byte* codes = codes_of(target, place, head);
  for (int i = threadIdx.x; i < params.columns; i += kWarp) {
    const float quotient = divide_by(row[i], scale);
    reinterpret_cast<__nv_fp8_storage_t*>(codes)[i] =
        __nv_cvt_float_to_fp8(quotient, __NV_SATFINITE, __NV_E4M3);
  }
  if (threadIdx.x == 0) {
    const float gate = gate_of(target, gate_bits(target, token, head));
    store_scale_anywhere(target, place, head, scale * gate);
  }
}

}  // namespace

template <typename Target>
void launch_general(const IndexRowParams& params, const Target& target, cudaStream_t stream) {
  launch(quantize_rows_general<Target>,
         {.grid = dim3(num_blocks(params.tokens * params.heads.value(), 1)),
          .block = dim3(kWarp),
          .shared_bytes = static_cast<std::size_t>(params.columns) * sizeof(float)},
         stream, params, target);
}

template void launch_general(const IndexRowParams&, const KeyTarget&, cudaStream_t);
template void launch_general(const IndexRowParams&, const QueryTarget&, cudaStream_t);

}  // namespace quire::cuda::any::index_rows
