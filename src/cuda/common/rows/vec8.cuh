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

// Two neighbouring numbers of 16 bits in a word.
__device__ inline std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(pair);
}
__device__ inline std::uint32_t pack_f16(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(pair);
}
template <DType kType> __device__ inline std::uint32_t pack_pair(float low, float high) {
  return kType == DType::bf16 ? pack_bf16(low, high) : pack_f16(low, high);
}
template <DType kType> __device__ inline float2 unpack_pair(std::uint32_t word) {
  if constexpr (kType == DType::f16) return __half22float2(reinterpret_cast<const __half2&>(word));
  return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}

template <DType kType> struct Vec8 {
  static_assert(bits(kType) == 16);
  using Raw = uint4;
  __device__ static Raw load(const std::byte* source) {
    return *reinterpret_cast<const uint4*>(source);
  }
  __device__ static float round(float value) {
    if constexpr (kType == DType::f16) return __half2float(__float2half_rn(value));
    return __bfloat162float(__float2bfloat16_rn(value));
  }
  __device__ static Raw encode(const float (&v)[kVec8]) {
    return make_uint4(pack_pair<kType>(v[0], v[1]), pack_pair<kType>(v[2], v[3]),
                      pack_pair<kType>(v[4], v[5]), pack_pair<kType>(v[6], v[7]));
  }
  __device__ static void decode(const Raw& raw, float (&values)[kVec8]) {
    const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpack_pair<kType>(words[i]);
      values[2 * i] = pair.x;
      values[2 * i + 1] = pair.y;
    }
  }
};

template <> struct Vec8<DType::f32> {
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

// start<dtype>(), for a type of 16 or 32 bits that Vec8 has.
template <typename Start> void with_vec8_type(DType dtype, const Start& start) {
  if (dtype == DType::bf16) return start.template operator()<DType::bf16>();
  if (dtype == DType::f16) return start.template operator()<DType::f16>();
  start.template operator()<DType::f32>();
}

template <DType kType>
__device__ inline void store_vec8(std::byte* target, const float (&values)[kVec8]) {
  *reinterpret_cast<typename Vec8<kType>::Raw*>(target) = Vec8<kType>::encode(values);
}

// Saturates; NaN stays NaN.
__device__ inline std::uint32_t pack_fp8(float a, float b, float c, float d,
                                         __nv_fp8_interpretation_t kind) {
  const std::uint32_t low = __nv_cvt_float2_to_fp8x2({a, b}, __NV_SATFINITE, kind);
  const std::uint32_t high = __nv_cvt_float2_to_fp8x2({c, d}, __NV_SATFINITE, kind);
  return low | high << 16;
}
__device__ inline uint2 pack_fp8(const float (&v)[kVec8], __nv_fp8_interpretation_t kind) {
  return {pack_fp8(v[0], v[1], v[2], v[3], kind), pack_fp8(v[4], v[5], v[6], v[7], kind)};
}

template <__nv_fp8_interpretation_t kFormat>
__device__ inline uint2 encode_fp8(const float (&values)[kVec8]) {
  return pack_fp8(values, kFormat);
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
      *reinterpret_cast<uint2*>(target) = pack_fp8(values, __NV_E4M3);
      return;
    case DType::fp8_e5m2:
      *reinterpret_cast<uint2*>(target) = pack_fp8(values, __NV_E5M2);
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

// Eight numbers, or one, of a dtype that is known at run time, as fp32: exact, all of them fit.

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
      return Vec8<DType::f32>::decode(
          {read_only<float4>(from), read_only<float4>(from + sizeof(float4))}, values);
    case DType::f16:
      return Vec8<DType::f16>::decode(read_only<uint4>(from), values);
    case DType::bf16:
      return Vec8<DType::bf16>::decode(read_only<uint4>(from), values);
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

// Eight numbers of bf16, times `scale`: one rounding.
__device__ inline uint4 scale_vec8(const uint4& vec8, float scale) {
  const auto word = [scale](std::uint32_t two) {
    const float2 pair = unpack_pair<DType::bf16>(two);
    return pack_bf16(pair.x * scale, pair.y * scale);
  };
  return {word(vec8.x), word(vec8.y), word(vec8.z), word(vec8.w)};
}

// To f32, f16, bf16 or fp8: one rounding, one vector store. `to` is aligned to 16 bytes, for fp8 to 8.
__device__ inline void store_run(std::byte* to, DType dtype, const float (&v)[kVec8]) {
  switch (dtype) {
    case DType::bf16:
      return store_vec8<DType::bf16>(to, v);
    case DType::f16:
      return store_vec8<DType::f16>(to, v);
    case DType::f32:
      return store_vec8<DType::f32>(to, v);
    default: {
      // Both, then one of them: a conversion that only happens sometimes keeps its registers from
      // one tile to the next, and large tiles have none to spare.
      const uint2 e4m3 = pack_fp8(v, __NV_E4M3);
      uint2 e5m2 = pack_fp8(v, __NV_E5M2);
      asm volatile("" : "+r"(e5m2.x), "+r"(e5m2.y));
      *reinterpret_cast<uint2*>(to) = dtype == DType::fp8_e5m2 ? e5m2 : e4m3;
    }
  }
}

// v += 8 values at `from`: f32, f16 or bf16, aligned to their size.
__device__ inline void add_run(const std::byte* from, DType dtype, float (&v)[kVec8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (dtype == DType::f32) {
      v[i] += __ldg(reinterpret_cast<const float*>(from) + i);
    } else if (dtype == DType::bf16) {
      v[i] += __bfloat162float(__ldg(reinterpret_cast<const __nv_bfloat16*>(from) + i));
    } else {
      v[i] += __half2float(__ldg(reinterpret_cast<const __half*>(from) + i));
    }
  }
}

}  // namespace quire::cuda
