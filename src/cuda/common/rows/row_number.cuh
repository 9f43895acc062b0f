// SPDX-License-Identifier: Apache-2.0
// One number of a cache row. Parts and scales of mixed formats need not be aligned to their types, and
// neither are rows whose elements are bytes: what src/core copies byte by byte is put together here.
#pragma once

#include "cuda/common/rows/any_vec8.cuh"
#include "cuda/common/rows/number.cuh"

namespace quire::cuda {

__device__ inline bool is_number_aligned(const std::byte* address, DType dtype) {
  const auto size = static_cast<std::uintptr_t>(bits(dtype) / 8);
  return (reinterpret_cast<std::uintptr_t>(address) & (size - 1)) == 0;
}

// Exact: all types fit fp32.
__device__ inline float load_unaligned(const std::byte* from, DType dtype) {
  std::uint32_t word = 0;
  for (int i = 0; i < bits(dtype) / 8; ++i) {
    word |= static_cast<std::uint32_t>(from[i]) << (8 * i);
  }
  if (dtype == DType::f32) return __uint_as_float(word);
  if (dtype == DType::bf16) return __uint_as_float(word << 16);
  return __half2float(__ushort_as_half(static_cast<unsigned short>(word)));
}
// A function of its own: rows are seldom like that.
static __device__ __noinline__ void store_unaligned(std::byte* to, DType dtype, double value) {
  std::uint32_t word = 0;
  store_number(reinterpret_cast<std::byte*>(&word), dtype, 0, value);
  for (int i = 0; i < bits(dtype) / 8; ++i) {
    to[i] = static_cast<std::byte>(word >> (8 * i) & 0xffu);
  }
}

// Through the read-only path: for rows that the kernel does not write.
__device__ inline float load_row_once(const std::byte* base, DType dtype, std::int64_t index) {
  const std::byte* from = base + index * (bits(dtype) / 8);
  return is_number_aligned(from, dtype) ? load_one(from, dtype, 0) : load_unaligned(from, dtype);
}

__device__ inline double load_row_number(const std::byte* base, DType dtype, std::int64_t index) {
  const std::byte* from = base + index * (bits(dtype) / 8);
  return is_number_aligned(from, dtype) ? load_number(from, dtype, 0) : load_unaligned(from, dtype);
}

__device__ inline void store_row_number(std::byte* base, DType dtype, std::int64_t index,
                                        double value) {
  std::byte* to = base + index * (bits(dtype) / 8);
  if (is_number_aligned(to, dtype)) {
    store_number(to, dtype, 0, value);
  } else {
    store_unaligned(to, dtype, value);
  }
}

}  // namespace quire::cuda
