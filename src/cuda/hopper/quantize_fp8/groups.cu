// SPDX-License-Identifier: Apache-2.0
// Rows in registers: groups inside a warp (lane_groups), or one group per row and block (whole_rows).
#include "cuda/hopper/quantize_fp8/scale.cuh"
#include "cuda/rows/divisor.h"
#include "cuda/rows/eight.cuh"
#include "cuda/rows/quotient.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {

namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kVectors = 4;  // of a thread in lane groups, all in flight at once

__device__ float largest_of(const float (&values)[kEight]) {
  float amax = 0.0f;
#pragma unroll
  for (int i = 0; i < kEight; ++i) amax = fmaxf(amax, fabsf(values[i]));
  return amax;
}

__device__ void store_quotients(std::byte* target, DType dtype, float (&values)[kEight], float amax,
                                float scale) {
  Quotient(scale, amax).divide(values);
  const uint2 codes =
      dtype == DType::fp8_e4m3 ? encode_fp8<__NV_E4M3>(values) : encode_fp8<__NV_E5M2>(values);
  __stcs(reinterpret_cast<uint2*>(target), codes);
}

// Vectors of all rows end to end, fewer than 2^31; a row holds whole groups, so groups are
// neighbouring lanes.
template <DType kX>
__global__ void __launch_bounds__(kThreads)
    quantize_lane_groups(const __grid_constant__ QuantizeParams params, Divisor row_vectors,
                         unsigned num_vectors, unsigned group_vectors) {
  const unsigned first = blockIdx.x * kVectors * kThreads + threadIdx.x;
  unsigned row[kVectors];
  unsigned vector[kVectors];
  typename Eight<kX>::Raw raw[kVectors] = {};
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const unsigned index = first + v * kThreads;
    row[v] = row_vectors.quotient(index);
    vector[v] = index - row[v] * row_vectors.value();
    if (index >= num_vectors) continue;
    raw[v] = Eight<kX>::load(params.x + row[v] * params.x_stride_bytes +
                             std::int64_t{vector[v]} * kEight * (bits(kX) / 8));
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    float values[kEight];
    Eight<kX>::decode(raw[v], values);
    float amax = largest_of(values);
    for (unsigned step = group_vectors / 2; step > 0; step /= 2) {
      amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, step));
    }
    if (first + v * kThreads >= num_vectors) continue;
    const float scale = group_scale(params, amax);
    store_quotients(params.out + row[v] * params.out_stride_bytes + vector[v] * kEight,
                    params.out_dtype, values, amax, scale);
    if ((vector[v] & (group_vectors - 1)) != 0) continue;
    const unsigned group = vector[v] >> (31 - __clz(group_vectors));
    params.scale[row[v] * params.scale_row_stride + group * params.scale_group_stride] = scale;
  }
}

template <DType kX, int kSlots>
__global__ void __launch_bounds__(kThreads)
    quantize_whole_rows(const __grid_constant__ QuantizeParams params) {
  __shared__ float warp_amax[kThreads / kWarp];
  const std::int64_t row = blockIdx.x;
  const std::byte* x = params.x + row * params.x_stride_bytes;
  typename Eight<kX>::Raw raw[kSlots] = {};
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int column = (s * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kEight;
    if (column < params.columns) {
      raw[s] = Eight<kX>::load(x + std::int64_t{column} * (bits(kX) / 8));
    }
  }
  float amax = 0.0f;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    float values[kEight];
    Eight<kX>::decode(raw[s], values);
    amax = fmaxf(amax, largest_of(values));
  }
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, step));
  }
  if (threadIdx.x % kWarp == 0) warp_amax[threadIdx.x / kWarp] = amax;
  __syncthreads();
  for (unsigned w = 0; w < blockDim.x / kWarp; ++w) amax = fmaxf(amax, warp_amax[w]);

  const float scale = group_scale(params, amax);
  if (threadIdx.x == 0) params.scale[row * params.scale_row_stride] = scale;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int column = (s * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kEight;
    if (column >= params.columns) continue;
    float values[kEight];
    Eight<kX>::decode(raw[s], values);
    store_quotients(params.out + row * params.out_stride_bytes + column, params.out_dtype, values,
                    amax, scale);
  }
}

template <DType kX> void launch_rows(const QuantizeParams& params, cudaStream_t stream) {
  const auto vectors = static_cast<int>(params.columns / kEight);
  const int threads = vectors >= kThreads ? kThreads : (vectors + kWarp - 1) / kWarp * kWarp;
  const int slots = (vectors + threads - 1) / threads;
  const LaunchShape shape{.grid = dim3(num_blocks(params.rows, 1)),
                          .block = dim3(static_cast<unsigned>(threads))};
  if (slots == 1) return launch(quantize_whole_rows<kX, 1>, shape, stream, params);
  if (slots == 2) return launch(quantize_whole_rows<kX, 2>, shape, stream, params);
  if (slots <= 4) return launch(quantize_whole_rows<kX, 4>, shape, stream, params);
  launch(quantize_whole_rows<kX, 8>, shape, stream, params);
}

template <DType kX> void launch_groups(const QuantizeParams& params, cudaStream_t stream) {
  const auto row_vectors = static_cast<unsigned>(params.columns / kEight);
  const std::int64_t vectors = params.rows * row_vectors;
  launch(quantize_lane_groups<kX>,
         {.grid = dim3(num_blocks(vectors, kVectors * kThreads)), .block = dim3(kThreads)}, stream,
         params, Divisor(row_vectors), static_cast<unsigned>(vectors),
         static_cast<unsigned>(params.group_size / kEight));
}

}  // namespace

void launch_lane_groups(const QuantizeParams& params, cudaStream_t stream) {
  if (params.x_dtype == DType::bf16) return launch_groups<DType::bf16>(params, stream);
  if (params.x_dtype == DType::f16) return launch_groups<DType::f16>(params, stream);
  launch_groups<DType::f32>(params, stream);
}

void launch_whole_rows(const QuantizeParams& params, cudaStream_t stream) {
  if (params.x_dtype == DType::bf16) return launch_rows<DType::bf16>(params, stream);
  if (params.x_dtype == DType::f16) return launch_rows<DType::f16>(params, stream);
  launch_rows<DType::f32>(params, stream);
}

}  // namespace quire::cuda::hopper
