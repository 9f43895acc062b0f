// SPDX-License-Identifier: Apache-2.0
// Σ over heads of max(0, dot) · q_scale, from the sums of a product to one result in one lane.
//
// A thread has, of its keys r and r + 8, the columns 8j + 2c and 8j + 2c + 1 (c = lane % 4). Of two tokens,
// columns come four by four by turns, so that all of a thread's are one token's. It adds up its own heads;
// then the lanes of a key and a token exchange halves until each holds what is its own:
//   2 tokens: token c / 2, key c % 2     1 token: key c % 2, twice
#pragma once

#include "cuda/sm90/mla_indexer/config.h"
#include "cuda/sm90/mla_indexer/team.cuh"

namespace quire::cuda::sm90::mla_indexer {

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
  static_assert(kTokens <= 2);
  static constexpr int kColumns = kConfig.columns();

  static constexpr int kGroup = IndexConfig::kHeadGroup;
  __device__ static int column(int token, int head) {
    return (head / kGroup * kTokens + token) * kGroup + head % kGroup;
  }

  // A thread's weights stand one after another; four floats between those of two lanes, or the four
  // lanes of a key would read the same banks.
  static constexpr int kOwnWeights = kColumns / 4;
  static constexpr int kWeightStride = kOwnWeights + 4;
  static constexpr int kWeightFloats = 4 * kWeightStride;
  __device__ static int weight_place(int token, int head) {
    const int at = column(token, head);
    return at / 2 % 4 * kWeightStride + at / 8 * 2 + at % 2;
  }
  __device__ static const float* own_weights(const float* weights) {
    return weights + threadIdx.x % 4 * kWeightStride;
  }

  // The token whose result a lane gets, and its key in the warp's 16.
  __device__ static int token() { return kTokens == 2 ? static_cast<int>(threadIdx.x % 4) / 2 : 0; }
  __device__ static int key() {
    return static_cast<int>(threadIdx.x % 32) / 4 + 8 * static_cast<int>(threadIdx.x % 2);
  }
  static constexpr int kWriters = 64 * kTokens;  // of a warpgroup
  // One of the lanes that hold the same result.
  __device__ static bool is_first() { return kTokens == 2 || threadIdx.x % 4 < 2; }

  // Adds up a thread's own heads, for both its keys; weights [kOwnWeights] are the thread's.
  __device__ static void add(const float (&products)[kColumns / 2], const float* weights,
                             float (&parts)[2]) {
    parts[0] = 0.0f;
    parts[1] = 0.0f;
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          parts[i] =
              fmaf(twice_positive(products[4 * j + 2 * i + e]), weights[2 * j + e], parts[i]);
        }
      }
    }
  }

  // The result of key() and token().
  __device__ static float exchange(const float (&parts)[2]) {
    float result = keep_half(parts[0], parts[1], 1, threadIdx.x % 2 != 0);
    if constexpr (kTokens == 1) result += __shfl_xor_sync(kWholeWarp, result, 2);
    return result;
  }
};

}  // namespace quire::cuda::sm90::mla_indexer
