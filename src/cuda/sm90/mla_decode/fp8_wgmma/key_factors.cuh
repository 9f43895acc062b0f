// SPDX-License-Identifier: Apache-2.0
// Scales of a thread's two keys, 8 apart. One for a row multiplies its scores and weights, in fp32. Four for a row are
// divided by a power of two, which takes their place there, and numbers are multiplied by what is left of them: in f16,
// near 2^5, so that numbers of a group 2^22 below the row's largest still have more digits than bf16.
#pragma once

#include <cuda_fp16.h>

#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/swap_ab/operands.cuh"

namespace quire::cuda::sm90::mla_decode {

struct LatentKeyFactors {
  float whole[2];
  __half2 left[2][SwapAbConfig::kScaleGroups / 2];  // where rows have four

  // Zeros, where there is no key: what stands in the place of its scales may be anything. `unit`: of the warp's keys;
  // `scales`: of those, where they have a tensor of their own.
  __device__ LatentKeyFactors(const LatentRowFormat& format, const std::byte* unit,
                              const float* scales, int live) {
    const auto key = static_cast<int>(threadIdx.x % 32 / 4);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = key + 8 * i;
      whole[i] = row < live ? 1.0F : 0.0F;
      if (format.row_scales_offset_bytes >= 0) {
        const auto* four = reinterpret_cast<const float4*>(unit + SpacedRows::offset(row, 0) +
                                                           format.row_scales_offset_bytes);
        divide(row < live ? *four : float4{}, i);
        if (row >= live) whole[i] = 0.0F;
      } else if (format.token_scales != nullptr && row < live) {
        whole[i] = scales[row];
      }
    }
  }

  // Of key `i`, for a group of columns.
  __device__ __half2 left_of(int i, int group) const {
    const __half2 pair = left[i][group / 2];
    return group % 2 == 0 ? __low2half2(pair) : __high2half2(pair);
  }

 private:
  static constexpr int kRaised = 5;
  static constexpr int kBias = 127;
  static constexpr int kLeast = 20;  // of the scales' exponent fields

  __device__ void divide(const float4& four, int i) {
    const float top =
        fmaxf(fmaxf(fabsf(four.x), fabsf(four.y)), fmaxf(fabsf(four.z), fabsf(four.w)));
    // The power's exponent field, and that of what it is divided by: both are normal numbers.
    const int field = max(static_cast<int>(__float_as_uint(top) >> 23), kLeast) - kRaised;
    const float inverse = __uint_as_float(static_cast<std::uint32_t>(2 * kBias - field) << 23);
    whole[i] = __uint_as_float(static_cast<std::uint32_t>(field) << 23);
    left[i][0] = __floats2half2_rn(four.x * inverse, four.y * inverse);
    left[i][1] = __floats2half2_rn(four.z * inverse, four.w * inverse);
  }
};

}  // namespace quire::cuda::sm90::mla_decode
