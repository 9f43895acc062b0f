// SPDX-License-Identifier: Apache-2.0
// Eight numbers, or one, of a dtype that is known at run time, as fp32: exact, all of them fit.
#pragma once

#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda {

template <typename T> __device__ inline T read_only(const std::byte* from) {
  return __ldg(reinterpret_cast<const T*>(from));
}

__device__ inline float decode_fp8(unsigned char code, __nv_fp8_interpretation_t kind) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, kind)));
}

__device__ inline void decode_fp8(uint2 codes, __nv_fp8_interpretation_t kind,
                                  float (&values)[kVec8]) {
  const unsigned words[2] = {codes.x, codes.y};
#pragma unroll
  for (int i = 0; i < kVec8 / 2; ++i) {
    const auto pair = static_cast<__nv_fp8x2_storage_t>(words[i / 2] >> (16 * (i % 2)));
    const float2 two = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, kind)));
    values[2 * i] = two.x;
    values[2 * i + 1] = two.y;
  }
}

__device__ inline void decode_i8(uint2 codes, float (&values)[kVec8]) {
  const unsigned words[2] = {codes.x, codes.y};
#pragma unroll
  for (int i = 0; i < kVec8; ++i) {
    values[i] = static_cast<float>(static_cast<signed char>(words[i / 4] >> (8 * (i % 4))));
  }
}

__device__ inline float load_one(const std::byte* base, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f32:
      return read_only<float>(base + 4 * index);
    case DType::f16:
      return __half2float(__ushort_as_half(read_only<unsigned short>(base + 2 * index)));
    case DType::bf16:
      return __uint_as_float(unsigned{read_only<unsigned short>(base + 2 * index)} << 16);
    case DType::fp8_e4m3:
      return decode_fp8(read_only<unsigned char>(base + index), __NV_E4M3);
    case DType::fp8_e5m2:
      return decode_fp8(read_only<unsigned char>(base + index), __NV_E5M2);
    default:
      return static_cast<float>(read_only<signed char>(base + index));
  }
}

// At an address aligned to vec8_alignment().
__device__ inline void load_vec8(const std::byte* from, DType dtype, float (&values)[kVec8]) {
  switch (dtype) {
    case DType::f32:
      return Eight<DType::f32>::decode(
          {read_only<float4>(from), read_only<float4>(from + sizeof(float4))}, values);
    case DType::f16:
      return Eight<DType::f16>::decode(read_only<uint4>(from), values);
    case DType::bf16:
      return Eight<DType::bf16>::decode(read_only<uint4>(from), values);
    case DType::fp8_e4m3:
      return decode_fp8(read_only<uint2>(from), __NV_E4M3, values);
    case DType::fp8_e5m2:
      return decode_fp8(read_only<uint2>(from), __NV_E5M2, values);
    default:
      return decode_i8(read_only<uint2>(from), values);
  }
}

// To f32, f16 or bf16, to nearest even.
__device__ inline void store_one(std::byte* base, DType dtype, std::int64_t index, float value) {
  switch (dtype) {
    case DType::f32:
      reinterpret_cast<float*>(base)[index] = value;
      return;
    case DType::f16:
      reinterpret_cast<__half*>(base)[index] = __float2half_rn(value);
      return;
    default:
      reinterpret_cast<__nv_bfloat16*>(base)[index] = __float2bfloat16_rn(value);
  }
}

}  // namespace quire::cuda
