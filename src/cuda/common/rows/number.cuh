// SPDX-License-Identifier: Apache-2.0
// One number of any dtype, exactly: what src/core's load_element and store_element do, on the
// device. For the general paths; the fast ones move eight numbers at a time (vec8.cuh).
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/dtype.h"
#include "quire/float_format.h"

namespace quire::cuda {

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

// To nearest even, fp8 and i8 saturating; NaN is 0 in i8.
__device__ inline void store_number(std::byte* base, DType dtype, std::int64_t index,
                                    double value) {
  switch (dtype) {
    case DType::f32:
      reinterpret_cast<float*>(base)[index] = static_cast<float>(value);
      return;
    case DType::f16:
      reinterpret_cast<std::uint16_t*>(base)[index] =
          static_cast<std::uint16_t>(encode_float<kFloat16>(value));
      return;
    case DType::bf16:
      reinterpret_cast<std::uint16_t*>(base)[index] =
          static_cast<std::uint16_t>(encode_float<kBFloat16>(value));
      return;
    case DType::fp8_e4m3:
      reinterpret_cast<std::uint8_t*>(base)[index] =
          static_cast<std::uint8_t>(encode_float<kFp8E4M3>(value));
      return;
    case DType::fp8_e5m2:
      reinterpret_cast<std::uint8_t*>(base)[index] =
          static_cast<std::uint8_t>(encode_float<kFp8E5M2>(value));
      return;
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

}  // namespace quire::cuda
