// SPDX-License-Identifier: Apache-2.0
// One number of the four lanes of a quad, which hold a row of a product's result between them; and of the
// eight lanes that have the same place in their quads, which hold a column. The same in each of them.
#pragma once

namespace quire::cuda {

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

}  // namespace quire::cuda
