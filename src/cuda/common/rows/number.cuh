// SPDX-License-Identifier: Apache-2.0
// One number of any dtype: loaded, stored, exact.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "cuda/common/rows/vec8.cuh"
#include "quire/dtype.h"
#include "quire/float_format.h"

namespace quire::cuda {

// One number of any dtype, exactly: what src/core's load_element and store_element do, on the
// device. For the general paths; the fast ones move eight numbers at a time (vec8.cuh).

__device__ inline double load_number(const std::byte* base, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f32:
      return reinterpret_cast<const float*>(base)[index];
    case DType::f16:
      return decode_float<kFloat16>(reinterpret_cast<const std::uint16_t*>(base)[index]);
    case DType::bf16:
      return decode_float<kBFloat16>(reinterpret_cast<const std::uint16_t*>(base)[index]);
    case DType::fp8_e4m3:
      return decode_float<kFp8E4M3>(reinterpret_cast<const std::uint8_t*>(base)[index]);
    case DType::fp8_e5m2:
      return decode_float<kFp8E5M2>(reinterpret_cast<const std::uint8_t*>(base)[index]);
    case DType::i8:
      return reinterpret_cast<const std::int8_t*>(base)[index];
    default:
      return 0.0;  // no op here reads numbers of another type
  }
}

template <FloatFormat kFormat, typename Code>
__device__ inline void store_code(std::byte* base, std::int64_t index, double value) {
  reinterpret_cast<Code*>(base)[index] = static_cast<Code>(encode_float<kFormat>(value));
}

// To nearest even, fp8 and i8 saturating; NaN is 0 in i8.
__device__ inline void store_number(std::byte* base, DType dtype, std::int64_t index,
                                    double value) {
  switch (dtype) {
    case DType::f32:
      reinterpret_cast<float*>(base)[index] = static_cast<float>(value);
      return;
    case DType::f16:
      return store_code<kFloat16, std::uint16_t>(base, index, value);
    case DType::bf16:
      return store_code<kBFloat16, std::uint16_t>(base, index, value);
    case DType::fp8_e4m3:
      return store_code<kFp8E4M3, std::uint8_t>(base, index, value);
    case DType::fp8_e5m2:
      return store_code<kFp8E5M2, std::uint8_t>(base, index, value);
    case DType::i8: {
      const double whole = isnan(value) ? 0.0 : rint(fmin(fmax(value, -128.0), 127.0));
      reinterpret_cast<std::int8_t*>(base)[index] = static_cast<std::int8_t>(whole);
      return;
    }
    default:
      return;
  }
}

// What store_number and load_number make of a value.
__device__ inline double round_number(DType dtype, double value) {
  switch (dtype) {
    case DType::f32:
      return static_cast<double>(static_cast<float>(value));
    case DType::f16:
      return decode_float<kFloat16>(encode_float<kFloat16>(value));
    case DType::bf16:
      return decode_float<kBFloat16>(encode_float<kBFloat16>(value));
    default:
      return value;  // scales and norms have no other types
  }
}

// Largest finite magnitude of the types that caches quantize to.
__host__ __device__ inline float max_finite_of(DType dtype) {
  return dtype == DType::fp8_e4m3 ? 448.0f : dtype == DType::fp8_e5m2 ? 57344.0f : 127.0f;
}

// A number of f32, f16 or bf16 in two steps: its bits are asked for early and decoded where the number is used, so that
// nothing waits for them in between.

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

// One number of a cache row. Parts and scales of mixed formats need not be aligned to their types, and
// neither are rows whose elements are bytes: what src/core copies byte by byte is put together here.

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
  return float_of_bits(word, dtype);
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

// Element `index` of an array of f32, f16 or bf16, which no kernel writes meanwhile.
__device__ inline float load_float(const std::byte* from, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f32:
      return __ldg(reinterpret_cast<const float*>(from) + index);
    case DType::bf16:
      return __bfloat162float(__ldg(reinterpret_cast<const __nv_bfloat16*>(from) + index));
    default:
      return __half2float(__ldg(reinterpret_cast<const __half*>(from) + index));
  }
}

}  // namespace quire::cuda
