// SPDX-License-Identifier: Apache-2.0
// LayerNorm of rows that a few lanes hold in registers; the rows of a lane share its reads of weight and bias.
#pragma once

#include "cuda/hopper/index_rows/row_steps.cuh"

namespace quire::cuda::hopper {

// rsqrt(variance) of rows whose squares are beyond f32, from numbers scaled down: ε is nothing there.
template <int kLanes, int kWidth>
__device__ inline float huge_row_factor(const RowValues<kWidth>& values) {
  constexpr float kShare = 1.0f / (kLanes * kRowVectors * kWidth);
  constexpr float kDown = 0x1p-70f;
  float squares[1] = {};
#pragma unroll
  for (int v = 0; v < kRowVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float small = values[v][i] * kDown;
      squares[0] = fmaf(small, small, squares[0]);
    }
  }
  sum_lanes<kLanes>(squares);
  return rsqrtf(squares[0] * kShare) * kDown;
}

// Σ x / columns over the lane's numbers.
template <int kLanes, int kWidth>
__device__ inline float mean_of_lane(const RowValues<kWidth>& values) {
  constexpr float kShare = 1.0f / (kLanes * kRowVectors * kWidth);
  float shares[kRowVectors] = {};  // a chain of sums for each vector
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) shares[v] = fmaf(values[v][i], kShare, shares[v]);
  }
  return (shares[0] + shares[1]) + (shares[2] + shares[3]);
}

// Takes the mean off the lane's numbers and adds up the squares of what is left.
template <int kWidth> __device__ inline float center(RowValues<kWidth>& values, float mean) {
  float parts[kRowVectors] = {};
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
      values[v][i] -= mean;
      parts[v] = fmaf(values[v][i], values[v][i], parts[v]);
    }
  }
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

// (x - mean) · rsqrt(variance + ε) · weight + bias; the squares are those of what the mean is taken
// off already. norm: weight [columns] and bias [columns] from the lane's first column on.
template <int kLanes, int kRows, int kWidth>
__device__ inline void normalize(RowValues<kWidth> (&rows)[kRows], const float* norm,
                                 float epsilon) {
  constexpr int kColumns = kLanes * kRowVectors * kWidth;
  float means[kRows];
  float squares[kRows];
  float factors[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) means[r] = mean_of_lane<kLanes>(rows[r]);
  sum_lanes<kLanes>(means);
#pragma unroll
  for (int r = 0; r < kRows; ++r) squares[r] = center(rows[r], means[r]);
  sum_lanes<kLanes>(squares);
  bool is_huge = false;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    factors[r] = rsqrtf(fmaf(squares[r], 1.0f / kColumns, epsilon));
    is_huge = is_huge || isinf(squares[r]);
  }
  if (__any_sync(0xffffffffu, is_huge)) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float of_huge = huge_row_factor<kLanes>(rows[r]);
      if (isinf(squares[r])) factors[r] = of_huge;
    }
  }
#pragma unroll
  for (int v = 0; v < kRowVectors; ++v) {
    float weight[kWidth];
    float bias[kWidth];
    load_shared(norm + v * kLanes * kWidth, weight);
    load_shared(norm + kColumns + v * kLanes * kWidth, bias);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        rows[r][v][i] = fmaf(rows[r][v][i] * factors[r], weight[i], bias[i]);
      }
    }
  }
}

}  // namespace quire::cuda::hopper
