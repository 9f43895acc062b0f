// SPDX-License-Identifier: Apache-2.0
// Eight neighbouring numbers: 16 bytes of bf16 or f16, 32 of f32, 8 of an 8-bit type. Loads give the
// raw bytes, so that several can be in flight before the first is decoded.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstddef>
#include <cstdint>

#include "quire/dtype.h"

namespace quire::cuda {

inline constexpr int kVec8 = 8;

template <DType kType> struct Eight;

template <> struct Eight<DType::bf16> {
  using Raw = uint4;
  __device__ static Raw load(const std::byte* source) {
    return *reinterpret_cast<const uint4*>(source);
  }
  __device__ static void decode(const Raw& raw, float (&values)[kVec8]) {
    const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[2 * i] = __uint_as_float(words[i] << 16);
      values[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
  }
  __device__ static Raw encode(const float (&values)[kVec8]) {
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
      words[i] = reinterpret_cast<const unsigned&>(pair);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
  }
  __device__ static float round(float value) {
    return __bfloat162float(__float2bfloat16_rn(value));
  }
};

template <> struct Eight<DType::f16> {
  using Raw = uint4;
  __device__ static Raw load(const std::byte* source) {
    return *reinterpret_cast<const uint4*>(source);
  }
  __device__ static void decode(const Raw& raw, float (&values)[kVec8]) {
    const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = __half22float2(reinterpret_cast<const __half2&>(words[i]));
      values[2 * i] = pair.x;
      values[2 * i + 1] = pair.y;
    }
  }
  __device__ static Raw encode(const float (&values)[kVec8]) {
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __half2 pair = __floats2half2_rn(values[2 * i], values[2 * i + 1]);
      words[i] = reinterpret_cast<const unsigned&>(pair);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
  }
  __device__ static float round(float value) {
    return __half2float(__float2half_rn(value));
  }
};

template <> struct Eight<DType::f32> {
  struct Raw {
    float4 low;
    float4 high;
  };
  __device__ static Raw load(const std::byte* source) {
    const auto* vectors = reinterpret_cast<const float4*>(source);
    return {vectors[0], vectors[1]};
  }
  __device__ static void decode(const Raw& raw, float (&values)[kVec8]) {
    const float4 halves[2] = {raw.low, raw.high};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      values[4 * i] = halves[i].x;
      values[4 * i + 1] = halves[i].y;
      values[4 * i + 2] = halves[i].z;
      values[4 * i + 3] = halves[i].w;
    }
  }
  __device__ static Raw encode(const float (&values)[kVec8]) {
    return {make_float4(values[0], values[1], values[2], values[3]),
            make_float4(values[4], values[5], values[6], values[7])};
  }
  __device__ static float round(float value) {
    return value;
  }
};

template <DType kType>
__device__ inline void store_vec8(std::byte* target, const float (&values)[kVec8]) {
  *reinterpret_cast<typename Eight<kType>::Raw*>(target) = Eight<kType>::encode(values);
}

template <__nv_fp8_interpretation_t kFormat>
__device__ inline uint2 encode_fp8(const float (&values)[kVec8]) {
  unsigned pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pairs[i] = __nv_cvt_float2_to_fp8x2(make_float2(values[2 * i], values[2 * i + 1]),
                                        __NV_SATFINITE, kFormat);
  }
  return make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
}

__device__ inline uint2 encode_i8(const float (&values)[kVec8]) {
  unsigned words[2] = {};
#pragma unroll
  for (int i = 0; i < kVec8; ++i) {
    const float bounded = fminf(fmaxf(values[i], -128.0f), 127.0f);
    const int whole = isnan(values[i]) ? 0 : __float2int_rn(bounded);
    words[i / 4] |= (static_cast<unsigned>(whole) & 0xffu) << (8 * (i % 4));
  }
  return make_uint2(words[0], words[1]);
}

// To a dtype that is known at run time: to nearest even, 8-bit types saturating.
__device__ inline void store_vec8(std::byte* target, DType dtype, const float (&values)[kVec8]) {
  switch (dtype) {
    case DType::f32:
      return store_vec8<DType::f32>(target, values);
    case DType::f16:
      return store_vec8<DType::f16>(target, values);
    case DType::bf16:
      return store_vec8<DType::bf16>(target, values);
    case DType::fp8_e4m3:
      *reinterpret_cast<uint2*>(target) = encode_fp8<__NV_E4M3>(values);
      return;
    case DType::fp8_e5m2:
      *reinterpret_cast<uint2*>(target) = encode_fp8<__NV_E5M2>(values);
      return;
    default:
      *reinterpret_cast<uint2*>(target) = encode_i8(values);
      return;
  }
}

// Bytes that eight numbers are aligned to, so that one vector holds them.
inline std::int64_t vec8_alignment(DType dtype) {
  return bits(dtype) == 8 ? 8 : 16;
}

}  // namespace quire::cuda
