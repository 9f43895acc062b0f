// SPDX-License-Identifier: Apache-2.0
// Σ over heads of max(0, dot) · q_scale, from the sums of a product to one result in one lane.
//
// A thread has, of its keys r and r + 8, the columns 8j + 2c and 8j + 2c + 1 (c = lane % 4). It adds up
// its own heads; then the four lanes of a key exchange halves until each holds what is its own:
//   4 tokens: token c, both keys     2 tokens: token c / 2, key c % 2     1 token: key c % 2, twice
#pragma once

#include "cuda/hopper/mla_indexer/config.h"
#include "cuda/hopper/mla_indexer/team.cuh"

namespace quire::cuda::hopper {

// 2 max(0, x), NaN kept: two full-rate instructions with the multiplication where a maximum has half
// the rate. The weights are halved.
__device__ inline float twice_positive(float x) {
  return x + fabsf(x);
}

// Keeps `low` in lanes whose bit `step` is clear, `high` in the others, and adds the other lane's.
__device__ inline float keep_half(float low, float high, int step, bool is_high) {
  const float sent = is_high ? low : high;
  return (is_high ? high : low) + __shfl_xor_sync(kWholeWarp, sent, step);
}

template <IndexConfig kConfig> struct HeadSums {
  static constexpr int kTokens = kConfig.tokens;
  static constexpr int kColumns = kConfig.product_columns();
  static constexpr int kResults = kTokens == 4 ? 2 : 1;
  // Below eight heads two tokens share the columns of four lanes.
  static constexpr bool kSharesGroup = kConfig.heads < 8;
  static_assert(!kSharesGroup || (kConfig.heads == 4 && kTokens == 2));
  static constexpr int kParts = kSharesGroup ? 1 : kTokens;

  // A thread's weights of a product stand one after another; four floats between those of two lanes,
  // or the four lanes of a key would read the same banks.
  static constexpr int kOwnWeights = kColumns / 4;
  static constexpr int kWeightStride = kOwnWeights + 4;
  static constexpr int kWeightFloats = 4 * kWeightStride * kConfig.products();
  __device__ static int weight_place(int column) {
    const int lane = column / 2 % 4 + 4 * (column / kColumns);
    return lane * kWeightStride + column % kColumns / 8 * 2 + column % 2;
  }
  // Of a product.
  __device__ static const float* own_weights(const float* weights, int product) {
    return weights + (threadIdx.x % 4 + 4 * product) * kWeightStride;
  }

  // The token whose results a lane gets, and the first of its keys in the warp's 16.
  __device__ static int token() {
    const int c = static_cast<int>(threadIdx.x % 4);
    return kTokens == 4 ? c : (kTokens == 2 ? c / 2 : 0);
  }
  __device__ static int key() {
    const int row = static_cast<int>(threadIdx.x % 32) / 4;
    return kTokens == 4 ? row : row + 8 * static_cast<int>(threadIdx.x % 2);
  }
  // One of the lanes that hold the same result.
  __device__ static bool is_first() { return kTokens != 1 || threadIdx.x % 4 < 2; }

  // What a product adds to the parts of its tokens; weights [kOwnWeights] are the thread's.
  __device__ static void add(const float (&sums)[kColumns / 2], const float* weights, int product,
                             float (&parts)[kParts][2]) {
    constexpr int kProductParts = kParts / kConfig.products();
    constexpr int kGroups = kColumns / 8 / kProductParts;  // of eight columns, to a token
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      const float pair[2] = {weights[2 * j], weights[2 * j + 1]};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& part = parts[product * kProductParts + j / kGroups][i];
          part = fmaf(twice_positive(sums[4 * j + 2 * i + e]), pair[e], part);
        }
      }
    }
  }

  // Result i belongs to key() + 8i.
  __device__ static void exchange(const float (&parts)[kParts][2], float (&results)[kResults]) {
    const bool is_odd = threadIdx.x % 2 != 0;
    const bool is_high = threadIdx.x % 4 >= 2;
    if constexpr (kTokens == 4) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float even = keep_half(parts[0][i], parts[2][i], 2, is_high);
        const float odd = keep_half(parts[1][i], parts[3][i], 2, is_high);
        results[i] = keep_half(even, odd, 1, is_odd);
      }
    } else if constexpr (kParts == 2) {
      const float first = keep_half(parts[0][0], parts[1][0], 2, is_high);
      const float second = keep_half(parts[0][1], parts[1][1], 2, is_high);
      results[0] = keep_half(first, second, 1, is_odd);
    } else {
      results[0] = keep_half(parts[0][0], parts[0][1], 1, is_odd);
      if constexpr (!kSharesGroup) {
        results[0] += __shfl_xor_sync(kWholeWarp, results[0], 2);
      }
    }
  }
};

}  // namespace quire::cuda::hopper
