// SPDX-License-Identifier: Apache-2.0
// The query rows of an item as A operands of a warp, held in registers.
#pragma once

#include "cuda/common/mma/fragments.cuh"
#include "cuda/common/thread/quad_reduce.cuh"
#include "cuda/sm90/flash_attention/decode/params.h"
#include "cuda/sm90/flash_attention/decode/shared.cuh"

namespace quire::cuda::sm90::flash_attention {

template <DecodeConfig kConfig> struct QueryRows {
  static constexpr int kSteps = kConfig.dims() / 16;
  static constexpr int kHalves = kConfig.halves();

  std::uint32_t words[kSteps][4];
  float factor[kHalves];  // that the numbers, and those of K, were divided by

  // Rows first_row + lane / 4 + 8 · half.
  __device__ void load(const DecodeShared<kConfig>& shared, int slot, int first_row) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[step][i] = 0;
        if (i % 2 >= kHalves) continue;
        const int row = first_row + lane / 4 + 8 * (i % 2);
        const int column = 16 * step + query_column<kConfig.dtype>(lane % 4, i / 2 * 2);
        const int piece = (column % 64 / 8) ^ (row % 8);
        words[step][i] = *reinterpret_cast<const std::uint32_t*>(
            &shared.queries[slot][column / 64][row * 128 + piece * 16 + column % 8 * 2]);
      }
    }
#pragma unroll
    for (int half = 0; half < kHalves; ++half) factor[half] = 1.0F;
  }

  // bf16 to f16. A power of two brings the row's largest number near the top of f16's range: what is
  // lost is smaller than it by 2^-29 or more.
  __device__ void convert_from_bf16() {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const float largest = row_magnitude(half);
      const int exponent = static_cast<int>(__float_as_uint(largest) >> 23);
      const int shift = exponent == 255 ? 127 : min(254 + 14 - exponent, 240);
      const float multiplier = __uint_as_float(static_cast<std::uint32_t>(shift) << 23);
      factor[half] = __uint_as_float(static_cast<std::uint32_t>(254 - shift) << 23);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int i = half; i < 4; i += 2) {
          words[step][i] = WarpProduct<DType::f16>::pack(low_of(words[step][i]) * multiplier,
                                                         high_of(words[step][i]) * multiplier);
        }
      }
    }
  }

  __device__ void scale_by(float key_scale) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) factor[half] *= key_scale;
  }

 private:
  __device__ static float low_of(std::uint32_t pair) {
    return __uint_as_float(pair << 16);
  }
  __device__ static float high_of(std::uint32_t pair) {
    return __uint_as_float(pair & 0xffff0000);
  }

  __device__ float row_magnitude(int half) const {
    float largest = 0.0F;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = half; i < 4; i += 2) {
        largest =
            fmaxf(largest, fmaxf(fabsf(low_of(words[step][i])), fabsf(high_of(words[step][i]))));
      }
    }
    return quad_max(largest);
  }
};

}  // namespace quire::cuda::sm90::flash_attention
