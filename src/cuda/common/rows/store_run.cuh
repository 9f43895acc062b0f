// SPDX-License-Identifier: Apache-2.0
// Runs of 8 fp32 values to memory as any float type: one rounding, one vector store.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstddef>
#include <cstdint>

#include "quire/dtype.h"

namespace quire::cuda {

__device__ inline std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(pair);
}
__device__ inline std::uint32_t pack_f16(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(pair);
}
// Saturates; NaN stays NaN.
__device__ inline std::uint32_t pack_fp8(float a, float b, float c, float d,
                                         __nv_fp8_interpretation_t kind) {
  const std::uint32_t low = __nv_cvt_float2_to_fp8x2({a, b}, __NV_SATFINITE, kind);
  const std::uint32_t high = __nv_cvt_float2_to_fp8x2({c, d}, __NV_SATFINITE, kind);
  return low | high << 16;
}

__device__ inline uint2 pack_fp8(const float (&v)[8], __nv_fp8_interpretation_t kind) {
  return {pack_fp8(v[0], v[1], v[2], v[3], kind), pack_fp8(v[4], v[5], v[6], v[7], kind)};
}

// `to` is aligned to 16 bytes, for fp8 to 8.
template <DType kDType> __device__ inline void store_run(std::byte* to, const float (&v)[8]) {
  if constexpr (kDType == DType::bf16) {
    *reinterpret_cast<uint4*>(to) = {pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]),
                                     pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7])};
  } else if constexpr (kDType == DType::f16) {
    *reinterpret_cast<uint4*>(to) = {pack_f16(v[0], v[1]), pack_f16(v[2], v[3]),
                                     pack_f16(v[4], v[5]), pack_f16(v[6], v[7])};
  } else if constexpr (kDType == DType::f32) {
    reinterpret_cast<float4*>(to)[0] = {v[0], v[1], v[2], v[3]};
    reinterpret_cast<float4*>(to)[1] = {v[4], v[5], v[6], v[7]};
  } else {
    *reinterpret_cast<uint2*>(to) = pack_fp8(v, kDType == DType::fp8_e4m3 ? __NV_E4M3 : __NV_E5M2);
  }
}

__device__ inline void store_run(std::byte* to, DType dtype, const float (&v)[8]) {
  switch (dtype) {
    case DType::bf16:
      return store_run<DType::bf16>(to, v);
    case DType::f16:
      return store_run<DType::f16>(to, v);
    case DType::f32:
      return store_run<DType::f32>(to, v);
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
__device__ inline void add_run(const std::byte* from, DType dtype, float (&v)[8]) {
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
