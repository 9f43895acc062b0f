// SPDX-License-Identifier: Apache-2.0
// Any group, any alignment: a warp per group, the row read twice.
#include "cuda/any/quantize_fp8/scale.cuh"
#include "cuda/common/rows/number.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/dependent_launch.cuh"
#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda::any::quantize_fp8 {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

__global__ void __launch_bounds__(kThreads)
    quantize_general(const __grid_constant__ QuantizeParams params, std::int64_t groups) {
  let_next_kernel_start();  // a projection that follows may fetch its weights
  const std::int64_t index = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  if (index >= params.rows * groups) return;
  const int lane = threadIdx.x % kWarp;
  const std::int64_t row = index / groups;
  const std::int64_t group = index - row * groups;
  const std::int64_t first = group * params.group_size;
  const std::int64_t end = min(first + params.group_size, params.columns);
  const std::byte* x = params.x + row * params.x_stride_bytes;

  float amax = 0.0f;
  for (std::int64_t column = first + lane; column < end; column += kWarp) {
    amax = fmaxf(amax, fabsf(static_cast<float>(load_number(x, params.x_dtype, column))));
  }
  const float scale = group_scale(params, warp_max(amax));
  if (lane == 0) {
    params.scale[row * params.scale_row_stride + group * params.scale_group_stride] = scale;
  }
  for (std::int64_t column = first + lane; column < end; column += kWarp) {
    const double value = load_number(x, params.x_dtype, column);
    const bool is_empty = scale == 0.0f && !isnan(value);
    store_number(params.out + row * params.out_stride_bytes, params.out_dtype, column,
                 is_empty ? 0.0 : value / static_cast<double>(scale));
  }
}

}  // namespace

void launch_general(const QuantizeParams& params, cudaStream_t stream) {
  const std::int64_t groups = (params.columns + params.group_size - 1) / params.group_size;
  const std::int64_t threads = params.rows * groups * kWarp;
  launch(quantize_general, {.grid = dim3(num_blocks(threads, kThreads)), .block = dim3(kThreads)},
         stream, params, groups);
}

}  // namespace quire::cuda::any::quantize_fp8
