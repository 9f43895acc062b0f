// SPDX-License-Identifier: Apache-2.0
// The softmax of one thread's two rows, a block of keys at a time, in registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/common/softmax/exponents.cuh"
#include "cuda/common/thread/quad_reduce.cuh"
#include "quire/dtype.h"

namespace quire::cuda {

// The highest of a thread's own scores of its two rows, as integers: those have a maximum of three,
// floats of two. The bits of floats compare as integers unless both are negative, so this is right
// unless all of a row's scores are.
template <int kScores>
__device__ inline void highest_bits(const float (&scores)[kScores], int (&highest)[2]) {
  int bits[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int at = k * 2;
    bits[k] = max(__float_as_int(scores[at]), __float_as_int(scores[at + 1]));
#pragma unroll
    for (int j = at + 8; j < kScores; j += 8) {
      bits[k] = max(max(bits[k], __float_as_int(scores[j])), __float_as_int(scores[j + 1]));
    }
  }
  highest[0] = max(bits[0], bits[2]);
  highest[1] = max(bits[1], bits[3]);
}
// The highest of row i, over its four threads.
template <int kScores> __device__ inline float highest_of(const float (&scores)[kScores], int i) {
  float highest = fmaxf(scores[2 * i], scores[2 * i + 1]);
#pragma unroll
  for (int j = 2 * i + 4; j < kScores; j += 4) {
    highest = fmaxf(highest, fmaxf(scores[j], scores[j + 1]));
  }
  return quad_max(highest);
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

// Row i of the thread (i = 0, 1): rows 8 apart. The maximum is in units of `to_log2`; the sum is
// this thread's own columns only, until the end.
struct RowSoftmax {
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0F, 0.0F};

  // Scores into weights, pairs of 16 bits. An exponential takes some 40 cycles and starts every 8:
  // a sum that follows its exponentials closely waits for each of them (measured: 13 cycles for
  // each). So they are added and packed a part later, under the next part's exponentials.
  template <DType kDType, int kScores>
  __device__ void weigh(float (&scores)[kScores], const float (&to_log2)[2],
                        const float (&offset)[2], std::uint32_t (&weights)[kScores / 2]) {
    constexpr int kPart = 16;
    float odd[2] = {0.0F, 0.0F};
#pragma unroll
    for (int first = 0; first < kScores + kPart; first += kPart) {
#pragma unroll
      for (int j = first; j < first + kPart && j < kScores; ++j) {
        scores[j] = exp2_approx(fmaf(scores[j], to_log2[j / 2 % 2], -offset[j / 2 % 2]));
      }
#pragma unroll
      for (int j = first - kPart; j >= 0 && j < first && j < kScores; j += 2) {
        sum[j / 2 % 2] += scores[j];
        odd[j / 2 % 2] += scores[j + 1];
        weights[j / 2] = pack_pair<kDType>(scores[j], scores[j + 1]);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) sum[i] += odd[i];
  }
};

template <int kSums> __device__ inline void scale_rows(float (&sums)[kSums], const float (&by)[2]) {
#pragma unroll
  for (int j = 0; j < kSums; ++j) sums[j] *= by[j / 2 % 2];
}

template <DType kDType, int kNumbers>
__device__ inline void pack(const float (&numbers)[kNumbers],
                            std::uint32_t (&words)[kNumbers / 2]) {
#pragma unroll
  for (int i = 0; i < kNumbers / 2; ++i) {
    words[i] = pack_pair<kDType>(numbers[2 * i], numbers[2 * i + 1]);
  }
}

}  // namespace quire::cuda
