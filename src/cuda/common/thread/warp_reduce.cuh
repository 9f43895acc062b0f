// SPDX-License-Identifier: Apache-2.0
// One number of all lanes of a warp, the same in each of them and in one order: the lane 16 away first.
#pragma once

namespace quire::cuda {

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

}  // namespace quire::cuda
