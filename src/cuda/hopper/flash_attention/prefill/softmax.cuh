// SPDX-License-Identifier: Apache-2.0
// The softmax of one thread's two rows, a block of keys at a time, in registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/hopper/flash_attention/prefill/config.h"
#include "cuda/hopper/flash_attention/prefill/params.h"

namespace quire::cuda::hopper {

inline constexpr float kLog2e = 1.4426950408889634F;
inline constexpr float kLn2 = 0.6931471805599453F;

__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffff, x, 1);
  return x + __shfl_xor_sync(0xffffffff, x, 2);
}

// Row i of the thread (i = 0, 1): rows 8 apart. The maximum is in units of `to_log2`; the sum is
// this thread's own columns only, until the end.
struct RowSoftmax {
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0F, 0.0F};

  // Scores into weights 2^((s - max) · to_log2); what was summed before is to be multiplied by
  // `keep`. A row that has seen no key yet keeps maximum -inf and gets weights 0.
  template <int kScores>
  __device__ void weigh(float (&scores)[kScores], float to_log2, float (&keep)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float highest = max[i];
#pragma unroll
      for (int j = 2 * i; j < kScores; j += 4) {
        highest = fmaxf(highest, fmaxf(scores[j], scores[j + 1]));
      }
      highest = quad_max(highest);
      const float offset = highest == -INFINITY ? 0.0F : highest * to_log2;
      keep[i] = exp2_approx(fmaf(max[i], to_log2, -offset));
      max[i] = highest;
      float even = 0.0F;
      float odd = 0.0F;
#pragma unroll
      for (int j = 2 * i; j < kScores; j += 4) {
        scores[j] = exp2_approx(fmaf(scores[j], to_log2, -offset));
        scores[j + 1] = exp2_approx(fmaf(scores[j + 1], to_log2, -offset));
        even += scores[j];
        odd += scores[j + 1];
      }
      sum[i] = fmaf(sum[i], keep[i], even + odd);
    }
  }
};

template <int kSums> __device__ inline void scale_rows(float (&sums)[kSums], const float (&by)[2]) {
#pragma unroll
  for (int j = 0; j < kSums; ++j) sums[j] *= by[j / 2 % 2];
}

template <DType kDType> __device__ inline std::uint32_t pack_pair(float low, float high) {
  std::uint32_t word;
  if constexpr (kDType == DType::bf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    word = *reinterpret_cast<const std::uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    word = *reinterpret_cast<const std::uint32_t*>(&pair);
  }
  return word;
}

template <DType kDType, int kNumbers>
__device__ inline void pack(const float (&numbers)[kNumbers], std::uint32_t (&words)[kNumbers / 2]) {
#pragma unroll
  for (int i = 0; i < kNumbers / 2; ++i) {
    words[i] = pack_pair<kDType>(numbers[2 * i], numbers[2 * i + 1]);
  }
}

}  // namespace quire::cuda::hopper
