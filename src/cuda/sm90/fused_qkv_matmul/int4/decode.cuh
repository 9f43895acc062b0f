// SPDX-License-Identifier: Apache-2.0
// Codes to numbers of x's type, two at a time. Few tokens are bound by the instructions here as much
// as by memory: 11 for a word of eight codes. A code in the lower mantissa bits is a subnormal number;
// one multiply-add makes it normal and subtracts the zero, both exactly. The power of two that is left
// goes into the scale, which multiplies the sums of a group in fp32: no product is rounded.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/common/matmul/int4/pack_order.h"
#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda::sm90::fused_qkv_matmul {

// (code - zero) / kFactor.
template <DType kDType> struct CodeFloat;

template <> struct CodeFloat<DType::bf16> {
  static constexpr float kFactor = 8.0f;

  __device__ static std::uint32_t add(std::uint32_t codes, std::uint32_t zeros) {
    const std::uint32_t two_127 = 0x7f007f00;  // code · 2⁻¹³⁰ · 2¹²⁷
    const __nv_bfloat162 value = __hfma2(reinterpret_cast<const __nv_bfloat162&>(codes),
                                         reinterpret_cast<const __nv_bfloat162&>(two_127),
                                         reinterpret_cast<const __nv_bfloat162&>(zeros));
    return reinterpret_cast<const std::uint32_t&>(value);
  }
  // A row's zero, from the sides' pair, in both halves.
  __device__ static std::uint32_t zero(std::uint32_t pair, int row) {
    return __byte_perm(pair, 0, row == 0 ? 0x1010 : 0x3232);
  }
};
template <> struct CodeFloat<DType::f16> {
  static constexpr float kFactor = 64.0f;

  __device__ static std::uint32_t add(std::uint32_t codes, std::uint32_t zeros) {
    const std::uint32_t two_15 = 0x78007800;  // code · 2⁻²¹ · 2¹⁵
    const __half2 value =
        __hfma2(reinterpret_cast<const __half2&>(codes), reinterpret_cast<const __half2&>(two_15),
                reinterpret_cast<const __half2&>(zeros));
    return reinterpret_cast<const std::uint32_t&>(value);
  }
  __device__ static std::uint32_t zero(std::uint32_t pair, int row) {
    const float eighths = __uint_as_float(row == 0 ? pair << 16 : pair & 0xffff0000u);
    return pack_f16(eighths * 0.125f, eighths * 0.125f);
  }
};

// A pair of the sides in registers, as it lies in memory. Not a bit is moved before it is used: a register on its way
// from memory would be waited for.
struct PairWords {
  uint2 first;           // two scales of 16 bits and the zeros, or two of f32
  std::uint32_t second;  // with scales of f32: the zeros
};

// What a thread knows of a group: its two rows' scales and zeros.
template <DType kDType> struct GroupSides {
  float2 scales;
  std::uint32_t zeros[2];

  // `from`: the pair's address in shared memory.
  __device__ GroupSides(unsigned from, DType scale_dtype) {
    std::uint32_t pair;
    if (scale_dtype == DType::f32) {
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(scales.x), "=f"(scales.y) : "r"(from));
      asm volatile("ld.shared.u32 %0, [%1];" : "=r"(pair) : "r"(from + 8));
    } else {
      std::uint32_t both;
      asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(both), "=r"(pair) : "r"(from));
      set_scales(both, scale_dtype);
    }
    set_zeros(pair);
  }
  __device__ GroupSides(const PairWords& pair, DType scale_dtype) {
    if (scale_dtype == DType::f32) {
      scales = {__uint_as_float(pair.first.x), __uint_as_float(pair.first.y)};
      set_zeros(pair.second);
    } else {
      set_scales(pair.first.x, scale_dtype);
      set_zeros(pair.first.y);
    }
  }

 private:
  __device__ void set_scales(std::uint32_t both, DType scale_dtype) {  // 16 bits each
    scales = scale_dtype == DType::f16
                 ? __half22float2(reinterpret_cast<const __half2&>(both))
                 : float2{__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000u)};
  }
  __device__ void set_zeros(std::uint32_t pair) {
    zeros[0] = CodeFloat<kDType>::zero(pair, 0);
    zeros[1] = CodeFloat<kDType>::zero(pair, 1);
  }
};

// The thread's operands of kWords products over 16 columns each.
template <DType kDType, int kWords>
__device__ inline void decode_words(const std::uint32_t* words, const GroupSides<kDType>& sides,
                                    std::uint32_t (*values)[4]) {
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::uint32_t rotated = j == 0 ? words[i] : __funnelshift_r(words[i], words[i], 4 * j);
      values[i][j] = CodeFloat<kDType>::add(rotated & 0x00780078u, sides.zeros[j % 2]);
    }
  }
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
