// SPDX-License-Identifier: Apache-2.0
// Numbers of any float type from anywhere, as fp32: exact, all of them fit.
#pragma once

#include "cuda/any/fused_qkv_matmul/params.h"
#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda::any::fused_qkv_matmul {

template <typename T> __device__ inline T load_as(const std::byte* from) {
  return __ldg(reinterpret_cast<const T*>(from));
}

__device__ inline float fp8_value(unsigned code, __nv_fp8_interpretation_t kind) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(static_cast<unsigned char>(code), kind)));
}

__device__ inline float load_float(const std::byte* base, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f32:
      return load_as<float>(base + 4 * index);
    case DType::f16:
      return __half2float(__ushort_as_half(load_as<unsigned short>(base + 2 * index)));
    case DType::bf16:
      return __uint_as_float(unsigned{load_as<unsigned short>(base + 2 * index)} << 16);
    case DType::fp8_e4m3:
      return fp8_value(load_as<unsigned char>(base + index), __NV_E4M3);
    default:
      return fp8_value(load_as<unsigned char>(base + index), __NV_E5M2);
  }
}

__device__ inline void decode_fp8(uint2 codes, __nv_fp8_interpretation_t kind, float (&v)[kRun]) {
  const unsigned words[2] = {codes.x, codes.y};
#pragma unroll
  for (int i = 0; i < kRun / 2; ++i) {
    const auto pair = static_cast<__nv_fp8x2_storage_t>(words[i / 2] >> (16 * (i % 2)));
    const float2 values = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, kind)));
    v[2 * i] = values.x;
    v[2 * i + 1] = values.y;
  }
}

// A run at an address that is aligned for one vector (f32: for two).
__device__ inline void load_vector(const std::byte* from, DType dtype, float (&v)[kRun]) {
  switch (dtype) {
    case DType::f32: {
      const float4 low = load_as<float4>(from);
      const float4 high = load_as<float4>(from + sizeof(float4));
      return Eight<DType::f32>::decode({low, high}, v);
    }
    case DType::f16:
      return Eight<DType::f16>::decode(load_as<uint4>(from), v);
    case DType::bf16:
      return Eight<DType::bf16>::decode(load_as<uint4>(from), v);
    case DType::fp8_e4m3:
      return decode_fp8(load_as<uint2>(from), __NV_E4M3, v);
    default:
      return decode_fp8(load_as<uint2>(from), __NV_E5M2, v);
  }
}

// The first `count` numbers of a run, one by one; zeros after them.
template <DType kDType>
__device__ inline void load_scalars(const std::byte* from, int count, float (&v)[kRun]) {
#pragma unroll
  for (int i = 0; i < kRun; ++i) v[i] = i < count ? load_float(from, kDType, i) : 0.0f;
}

__device__ inline void load_scalars(const std::byte* from, DType dtype, int count,
                                    float (&v)[kRun]) {
  switch (dtype) {
    case DType::f32:
      return load_scalars<DType::f32>(from, count, v);
    case DType::f16:
      return load_scalars<DType::f16>(from, count, v);
    case DType::bf16:
      return load_scalars<DType::bf16>(from, count, v);
    case DType::fp8_e4m3:
      return load_scalars<DType::fp8_e4m3>(from, count, v);
    default:
      return load_scalars<DType::fp8_e5m2>(from, count, v);
  }
}

// Columns [column, column + kRun) of a dense row; zeros past its end.
__device__ inline void load_dense(const std::byte* row, DType dtype, int column, int columns,
                                  bool has_vectors, float (&v)[kRun]) {
  const std::byte* from = row + std::int64_t{column} * (bits(dtype) / 8);
  if (has_vectors && column + kRun <= columns) return load_vector(from, dtype, v);
  load_scalars(from, dtype, columns - column, v);
}

__device__ inline void set_zero(float (&v)[kRun]) {
#pragma unroll
  for (float& value : v) value = 0.0f;
}

__device__ inline void multiply(float (&v)[kRun], float factor) {
#pragma unroll
  for (float& value : v) value *= factor;
}

}  // namespace quire::cuda::any::fused_qkv_matmul
