// SPDX-License-Identifier: Apache-2.0
// Codes to the exact small integers code - zero, two at a time, in the type of x. Scales multiply the
// sums of a group in fp32: no product is rounded. Few tokens are bound by the instructions here as
// much as by memory, so each of them counts: 11 for a word of eight codes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/hopper/fused_qkv_matmul/int4/code_exponent.h"
#include "cuda/hopper/fused_qkv_matmul/int4/packed_order.h"
#include "cuda/tile/store_run.cuh"

namespace quire::cuda::hopper {

// A code below the right exponent is the number kBase + code.
template <DType kDType> struct CodeFloat;

template <> struct CodeFloat<DType::bf16> {
  static constexpr int kBase = 16;
  static constexpr int kLargestZero = 240;  // up to here kBase + zero has 8 bits
  __device__ static std::uint32_t twice(float value) { return pack_bf16(value, value); }
  __device__ static std::uint32_t add(std::uint32_t a, std::uint32_t b) {
    const __nv_bfloat162 sum = __hadd2(reinterpret_cast<const __nv_bfloat162&>(a),
                                       reinterpret_cast<const __nv_bfloat162&>(b));
    return reinterpret_cast<const std::uint32_t&>(sum);
  }
};
template <> struct CodeFloat<DType::f16> {
  static constexpr int kBase = 128;
  static constexpr int kLargestZero = 255;
  __device__ static std::uint32_t twice(float value) { return pack_f16(value, value); }
  __device__ static std::uint32_t add(std::uint32_t a, std::uint32_t b) {
    const __half2 sum =
        __hadd2(reinterpret_cast<const __half2&>(a), reinterpret_cast<const __half2&>(b));
    return reinterpret_cast<const std::uint32_t&>(sum);
  }
};

// What is added to the codes of a thread's two rows.
template <DType kDType> struct CodeOffsets {
  using Float = CodeFloat<kDType>;
  static constexpr float kTwo23 = 8388608.0f;  // this plus a byte: the byte in its lowest bits

  std::uint32_t of[2];    // -kBase - zero, rounded if has_rest
  std::uint32_t zeros;    // of both rows, a byte each
  bool has_rest = false;  // a zero of the warp may be above kLargestZero

  __device__ explicit CodeOffsets(std::uint32_t zeros) : zeros(zeros) {
    of[0] = Float::twice(kTwo23 - Float::kBase - sum_with_two23(zeros, 0x7650));
    of[1] = Float::twice(kTwo23 - Float::kBase - sum_with_two23(zeros, 0x7651));
    if constexpr (Float::kLargestZero < 255) {
      has_rest = __any_sync(0xffffffffu, (zeros & 0x8080u) != 0);
    }
  }
  __device__ static float sum_with_two23(std::uint32_t zeros, std::uint32_t selector) {
    return __uint_as_float(__byte_perm(zeros, 0x4b000000, selector));
  }
  // In two exact steps.
  __device__ std::uint32_t subtract_large(std::uint32_t value, int row) const {
    const int zero = static_cast<int>(zeros >> (8 * row) & 0xff);
    const int first = min(zero, Float::kLargestZero);
    value = Float::add(value, Float::twice(static_cast<float>(-Float::kBase - first)));
    return Float::add(value, Float::twice(static_cast<float>(first - zero)));
  }
};

// The thread's operands of kWords products over 16 columns each.
template <DType kDType, int kWords>
__device__ inline void decode_words(const std::uint32_t* words, std::uint32_t exponent,
                                    const CodeOffsets<kDType>& offsets,
                                    std::uint32_t (*values)[4]) {
  using Float = CodeFloat<kDType>;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::uint32_t rotated = j == 0 ? words[i] : __funnelshift_r(words[i], words[i], 4 * j);
      values[i][j] = (rotated & kCodeBits) | exponent;
    }
  }
  if (offsets.has_rest) {
#pragma unroll
    for (int i = 0; i < 4 * kWords; ++i) {
      values[i / 4][i % 4] = offsets.subtract_large(values[i / 4][i % 4], i % 2);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4 * kWords; ++i) {
      values[i / 4][i % 4] = Float::add(values[i / 4][i % 4], offsets.of[i % 2]);
    }
  }
}

// Scales and zeros of a thread's two rows in one step of a panel: shared-memory addresses of those in
// group 0.
struct StepSides {
  unsigned scale;
  unsigned zero;
  DType scale_dtype;

  __device__ float2 scales(int group) const {
    float2 both;
    if (scale_dtype == DType::f32) {
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                   : "=f"(both.x), "=f"(both.y)
                   : "r"(scale + group * kPanelRows * 4));
      return both;
    }
    std::uint32_t halves;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(halves) : "r"(scale + group * kPanelRows * 2));
    if (scale_dtype == DType::f16) return __half22float2(reinterpret_cast<const __half2&>(halves));
    return {__uint_as_float(halves << 16), __uint_as_float(halves & 0xffff0000u)};
  }
  template <DType kDType> __device__ CodeOffsets<kDType> offsets(int group) const {
    std::uint16_t zeros;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(zeros) : "r"(zero + group * kPanelRows));
    return CodeOffsets<kDType>(zeros);
  }
};

}  // namespace quire::cuda::hopper
