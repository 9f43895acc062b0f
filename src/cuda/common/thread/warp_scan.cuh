// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace quire::cuda {

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
