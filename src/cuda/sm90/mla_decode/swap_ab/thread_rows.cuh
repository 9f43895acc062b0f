// SPDX-License-Identifier: Apache-2.0
// What a thread has of a tile's scores, keys × query rows: keys lane / 4 and lane / 4 + 8 of its warp's
// unit, and query rows 8j + 2 (lane % 4) + e.
#pragma once

#include "cuda/sm90/mla_decode/swap_ab/config.h"

namespace quire::cuda::sm90::mla_decode {

template <SwapAbConfig kConfig> struct ThreadRows {
  static constexpr int kScores = kConfig.rows / 2;
  static constexpr int kThreadRows = kConfig.rows / 4;  // row 2j + e is 8j + 2 (lane % 4) + e

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static constexpr int row_of(int score) { return score / 4 * 2 + score % 2; }
  __device__ static int row(int index) { return index / 2 * 8 + lane() % 4 * 2 + index % 2; }
  // Of the unit, the thread's first; the second stands 8 below it.
  __device__ static int key() { return lane() / 4; }
  // Of a row, over the thread's two keys, in the units of the products.
  __device__ static float own_top(const float (&scores)[kScores], int index) {
    return fmaxf(scores[index / 2 * 4 + index % 2], scores[index / 2 * 4 + index % 2 + 2]);
  }
};

}  // namespace quire::cuda::sm90::mla_decode
