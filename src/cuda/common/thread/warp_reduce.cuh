// SPDX-License-Identifier: Apache-2.0
// Reductions and scans over the lanes of a quad or a warp.
#pragma once

namespace quire::cuda {

// One number of the four lanes of a quad, which hold a row of a product's result between them; and of the
// eight lanes that have the same place in their quads, which hold a column. The same in each of them.

__device__ inline float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffff, value, 2));
}
__device__ inline int quad_max(int value) {
  value = max(value, __shfl_xor_sync(0xffffffff, value, 1));
  return max(value, __shfl_xor_sync(0xffffffff, value, 2));
}
__device__ inline float quad_sum(float value) {
  value += __shfl_xor_sync(0xffffffff, value, 1);
  return value + __shfl_xor_sync(0xffffffff, value, 2);
}

__device__ inline float column_max(float value) {
#pragma unroll
  for (int distance = 4; distance < 32; distance *= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  return value;
}
__device__ inline float column_sum(float value) {
#pragma unroll
  for (int distance = 4; distance < 32; distance *= 2) {
    value += __shfl_xor_sync(0xffffffff, value, distance);
  }
  return value;
}

// One number of all lanes of a warp, the same in each of them and in one order: the lane 16 away first.

__device__ inline float warp_max(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  return value;
}

template <typename Number> __device__ inline Number warp_sum(Number value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffff, value, distance);
  }
  return value;
}

// One number of the kLanes lanes that share a row, of several rows at once, so that their exchanges overlap.
template <int kLanes, int kRows> __device__ inline void sum_lanes(float (&values)[kRows]) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
#pragma unroll
    for (float& value : values) value += __shfl_xor_sync(0xffffffffu, value, step);
  }
}

template <int kLanes, int kRows> __device__ inline void largest_of_lanes(float (&values)[kRows]) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
#pragma unroll
    for (float& value : values) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
  }
}

// The sum over the lanes of a warp up to and with this one.
template <typename Number> __device__ inline Number sum_up_to_lane(Number value, int lane) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const Number before = __shfl_up_sync(0xffffffff, value, distance);
    if (lane >= distance) value += before;
  }
  return value;
}

}  // namespace quire::cuda
