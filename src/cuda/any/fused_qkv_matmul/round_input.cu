// SPDX-License-Identifier: Apache-2.0
// Activations::int8: x rounded to 8-bit integers times a scale, as fp32 and in the order of the
// stored weight columns. A warp has the columns of one token that share a weight scale.
#include "cuda/any/fused_qkv_matmul/load_operands.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::fused_qkv_matmul {
namespace {

constexpr int kLanes = 32;
constexpr int kThreads = 256;
constexpr int kMaxPerLane = 4;  // groups of 32, 64 or 128
constexpr float kLargestCode = 127.0f;

__device__ float largest_of_warp(float value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
  }
  return value;
}

// The quotient is rounded to fp32 first, as the op says; NaN counts as 0.
__device__ float rounded(float value, float scale) {
  if (scale == 0.0f || isnan(value)) return 0.0f;
  return scale * rintf(__fdiv_rn(value, scale));
}

__global__ void __launch_bounds__(kThreads)
    round_groups(const __grid_constant__ InputOperand x, int group, float* out) {
  const std::int64_t index =
      (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;  // of the group
  const int groups = x.columns / group;
  if (index >= std::int64_t{x.rows} * groups) return;
  const std::int64_t token = index / groups;
  const int first = static_cast<int>(index - token * groups) * group;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const std::byte* row = x.data + token * x.stride_bytes;
  float values[kMaxPerLane] = {};
  float amax = 0.0f;
#pragma unroll
  for (int i = 0; i < kMaxPerLane; ++i) {
    const int column = first + lane + i * kLanes;
    if (column >= first + group) continue;
    values[i] = load_float(row, x.dtype, x.perm == nullptr ? column : __ldg(x.perm + column));
    amax = fmaxf(amax, fabsf(values[i]));
  }
  const float scale = __fdiv_rn(largest_of_warp(amax), kLargestCode);
#pragma unroll
  for (int i = 0; i < kMaxPerLane; ++i) {
    const int column = first + lane + i * kLanes;
    if (column < first + group) out[token * x.columns + column] = rounded(values[i], scale);
  }
}

}  // namespace

void launch_round_input(const InputOperand& x, int group, float* out, cudaStream_t stream) {
  const std::int64_t groups = std::int64_t{x.rows} * (x.columns / group);
  launch(round_groups,
         {.grid = dim3(num_blocks(groups * kLanes, kThreads)), .block = dim3(kThreads)}, stream, x,
         group, out);
}

}  // namespace quire::cuda::any::fused_qkv_matmul
