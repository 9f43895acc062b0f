// SPDX-License-Identifier: Apache-2.0
// A number of f32, f16 or bf16 in two steps: its bits are asked for early and decoded where the number is used, so that
// nothing waits for them in between.
#pragma once

#include "cuda/common/rows/any_vec8.cuh"

namespace quire::cuda {

// Of element `index` of an array that no kernel writes meanwhile.
__device__ inline unsigned load_bits(const std::byte* from, DType dtype, std::int64_t index) {
  if (dtype == DType::f32) return read_only<unsigned>(from + 4 * index);
  return read_only<unsigned short>(from + 2 * index);
}

__device__ inline float float_of_bits(unsigned bits, DType dtype) {
  if (dtype == DType::f32) return __uint_as_float(bits);
  if (dtype == DType::bf16) return __uint_as_float(bits << 16);
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

}  // namespace quire::cuda
