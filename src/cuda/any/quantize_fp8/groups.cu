// SPDX-License-Identifier: Apache-2.0
// Rows in registers: groups inside a warp (lane_groups), or one group per row and block (whole_rows).
#include <algorithm>

#include "cuda/any/quantize_fp8/scale.cuh"
#include "cuda/common/rows/divisor.h"
#include "cuda/common/rows/granule_coder.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/dependent_launch.cuh"

namespace quire::cuda::any::quantize_fp8 {

namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kVectors = 4;  // of a thread in lane groups, all in flight at once

template <DType kXType, DType kOutType> struct QuantizeConfig {
  static constexpr DType kX = kXType;
  static constexpr DType kOut = kOutType;
};

// Not read again soon.
__device__ void store_codes(std::byte* target, uint2 codes) {
  __stcs(reinterpret_cast<uint2*>(target), codes);
}

// Vectors of all rows end to end, fewer than 2^31; a row holds whole groups, so groups are
// neighbouring lanes.
template <typename Config>
__global__ void __launch_bounds__(kThreads)
    quantize_lane_groups(const __grid_constant__ QuantizeParams params, Divisor row_vectors,
                         unsigned num_vectors, unsigned group_vectors) {
  let_next_kernel_start();  // a projection that follows may fetch its weights
  using X = Eight<Config::kX>;
  using Amax = Largest<Config::kX>;
  const unsigned first = blockIdx.x * kVectors * kThreads + threadIdx.x;
  unsigned row[kVectors];
  unsigned vector[kVectors];
  typename X::Raw raw[kVectors] = {};
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const unsigned index = first + v * kThreads;
    row[v] = row_vectors.quotient(index);
    vector[v] = index - row[v] * row_vectors.value();
    if (index >= num_vectors) continue;
    raw[v] = X::load(params.x + row[v] * params.x_stride_bytes +
                     std::int64_t{vector[v]} * kVec8 * (bits(Config::kX) / 8));
  }
  typename Amax::Value amax[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) amax[v] = Amax::of(raw[v]);
  for (unsigned step = group_vectors / 2; step > 0; step /= 2) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      amax[v] = Amax::merge(amax[v], Amax::exchange(amax[v], step));
    }
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (first + v * kThreads >= num_vectors) continue;
    const GranuleCodes coded =
        encode_group<Config::kX, Config::kOut>(params, raw[v], Amax::magnitude(amax[v]));
    store_codes(params.out + row[v] * params.out_stride_bytes + vector[v] * kVec8, coded.codes);
    if ((vector[v] & (group_vectors - 1)) != 0) continue;
    const unsigned group = vector[v] >> (31 - __clz(group_vectors));
    params.scale[row[v] * params.scale_row_stride + group * params.scale_group_stride] =
        coded.scale;
  }
}

template <typename Config, int kSlots>
__global__ void __launch_bounds__(kThreads)
    quantize_whole_rows(const __grid_constant__ QuantizeParams params) {
  let_next_kernel_start();  // a projection that follows may fetch its weights
  using X = Eight<Config::kX>;
  using Amax = Largest<Config::kX>;
  __shared__ float warp_amax[kThreads / kWarp];
  const std::int64_t row = blockIdx.x;
  const std::byte* x = params.x + row * params.x_stride_bytes;
  const auto column = [](int slot) {
    return (slot * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kVec8;
  };
  typename X::Raw raw[kSlots] = {};
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    if (column(s) >= params.columns) continue;
    raw[s] = X::load(x + std::int64_t{column(s)} * (bits(Config::kX) / 8));
  }
  typename Amax::Value largest = Amax::of(raw[0]);
#pragma unroll
  for (int s = 1; s < kSlots; ++s) largest = Amax::merge(largest, Amax::of(raw[s]));
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    largest = Amax::merge(largest, Amax::exchange(largest, step));
  }
  if (threadIdx.x % kWarp == 0) warp_amax[threadIdx.x / kWarp] = Amax::magnitude(largest);
  __syncthreads();
  float amax = warp_amax[0];
  for (unsigned w = 1; w < blockDim.x / kWarp; ++w) amax = fmaxf(amax, warp_amax[w]);

#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    if (column(s) >= params.columns) continue;
    const GranuleCodes coded = encode_group<Config::kX, Config::kOut>(params, raw[s], amax);
    store_codes(params.out + row * params.out_stride_bytes + column(s), coded.codes);
    if (column(s) == 0) params.scale[row * params.scale_row_stride] = coded.scale;
  }
}

template <typename Config> void launch_rows(const QuantizeParams& params, cudaStream_t stream) {
  const auto vectors = static_cast<int>(params.columns / kVec8);
  // Four vectors of a thread in flight, more only where the row is long.
  const int threads = std::clamp((vectors / 4 + kWarp - 1) / kWarp * kWarp, kWarp, kThreads);
  const int slots = (vectors + threads - 1) / threads;
  const LaunchShape shape{.grid = dim3(num_blocks(params.rows, 1)),
                          .block = dim3(static_cast<unsigned>(threads))};
  if (slots == 1) return launch(quantize_whole_rows<Config, 1>, shape, stream, params);
  if (slots == 2) return launch(quantize_whole_rows<Config, 2>, shape, stream, params);
  if (slots <= 4) return launch(quantize_whole_rows<Config, 4>, shape, stream, params);
  launch(quantize_whole_rows<Config, 8>, shape, stream, params);
}

template <typename Config> void launch_groups(const QuantizeParams& params, cudaStream_t stream) {
  const auto row_vectors = static_cast<unsigned>(params.columns / kVec8);
  const std::int64_t vectors = params.rows * row_vectors;
  launch(quantize_lane_groups<Config>,
         {.grid = dim3(num_blocks(vectors, kVectors * kThreads)), .block = dim3(kThreads)}, stream,
         params, Divisor(row_vectors), static_cast<unsigned>(vectors),
         static_cast<unsigned>(params.group_size / kVec8));
}

// start(config) with the configuration of the parameters' types.
template <typename Start> void with_config(const QuantizeParams& params, const Start& start) {
  const bool is_e4m3 = params.out_dtype == DType::fp8_e4m3;
  const auto with_x = [&]<DType kX>() {
    if (is_e4m3) return start(QuantizeConfig<kX, DType::fp8_e4m3>{});
    start(QuantizeConfig<kX, DType::fp8_e5m2>{});
  };
  if (params.x_dtype == DType::bf16) return with_x.template operator()<DType::bf16>();
  if (params.x_dtype == DType::f16) return with_x.template operator()<DType::f16>();
  with_x.template operator()<DType::f32>();
}

}  // namespace

void launch_lane_groups(const QuantizeParams& params, cudaStream_t stream) {
  with_config(params, [&]<typename Config>(Config) { launch_groups<Config>(params, stream); });
}

void launch_whole_rows(const QuantizeParams& params, cudaStream_t stream) {
  with_config(params, [&]<typename Config>(Config) { launch_rows<Config>(params, stream); });
}

}  // namespace quire::cuda::any::quantize_fp8
