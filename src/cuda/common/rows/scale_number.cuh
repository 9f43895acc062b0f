// SPDX-License-Identifier: Apache-2.0
// One scale of a cache row: f32, f16, bf16 or e8m0, which no number of a row has (number.cuh). e8m0 is a power of two in a
// byte, 2^(code - 127) without sign or zero; rounding to it goes up.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/common/rows/number.cuh"
#include "quire/dtype.h"

namespace quire::cuda {

__device__ inline float decode_e8m0(unsigned code) {
  // The lowest code is a subnormal of f32, the highest NaN.
  return __uint_as_float(code == 0xffu ? 0x7fc00000u : code == 0 ? 0x00400000u : code << 23);
}

// The smallest power of two that is not below the value, saturating at both ends.
__device__ inline unsigned encode_e8m0(double value) {
  if (isnan(value)) return 0xffu;
  if (!(value > 0x1p-127)) return 0;
  if (value > 0x1p+127) return 0xfeu;
  const auto word = static_cast<std::uint64_t>(__double_as_longlong(value));
  const bool is_above = (word & ((std::uint64_t{1} << 52) - 1)) != 0;
  return static_cast<unsigned>(word >> 52) - 1023u + 127u + (is_above ? 1u : 0u);
}

// Through the read-only path, aligned to its type.
__device__ inline float load_scale_once(const std::byte* base, DType dtype, std::int64_t index) {
  if (dtype == DType::e8m0) return decode_e8m0(read_only<unsigned char>(base + index));
  return load_one(base, dtype, index);
}
// The same of a scale among the bytes of a row, which may stand anywhere.
__device__ inline float load_row_scale_once(const std::byte* base, DType dtype,
                                            std::int64_t index) {
  if (dtype == DType::e8m0) return decode_e8m0(read_only<unsigned char>(base + index));
  return load_row_once(base, dtype, index);
}

// In double, standing anywhere.
__device__ inline double load_scale(const std::byte* base, DType dtype, std::int64_t index) {
  if (dtype == DType::e8m0) return decode_e8m0(static_cast<unsigned>(base[index]));
  return load_row_number(base, dtype, index);
}
__device__ inline void store_scale(std::byte* base, DType dtype, std::int64_t index, double value) {
  if (dtype == DType::e8m0) {
    base[index] = static_cast<std::byte>(encode_e8m0(value));
  } else {
    store_row_number(base, dtype, index, value);
  }
}

// What is stored for a granule whose largest magnitude asks for `needed`. A power of two is never 0: it is at least the one
// that quantize_fp8 gives zeros.
__device__ inline double round_needed_scale(DType dtype, double needed) {
  constexpr double kLowestPower = 1e-10;
  if (dtype == DType::e8m0) return decode_e8m0(encode_e8m0(fmax(needed, kLowestPower)));
  return round_number(dtype, needed);
}

}  // namespace quire::cuda
