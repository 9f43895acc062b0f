// SPDX-License-Identifier: Apache-2.0
// LayerNorm of rows that a few lanes hold in registers; the rows of a lane share its reads of weight and bias.
#pragma once

#include "cuda/any/index_rows/row_steps.cuh"

namespace quire::cuda::any::index_rows {

inline constexpr int kChains = 4;  // of sums, beside each other

// rsqrt(variance) of rows whose squares are beyond f32, from numbers scaled down: ε is nothing there.
template <int kLanes, int kVectors, int kWidth>
__device__ inline float huge_row_factor(const float (&values)[kVectors][kWidth]) {
  constexpr float kShare = 1.0f / (kLanes * kVectors * kWidth);
  constexpr float kDown = 0x1p-70f;
  float squares[1] = {};
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
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
template <int kLanes, int kVectors, int kWidth>
__device__ inline float mean_of_lane(const float (&values)[kVectors][kWidth]) {
  constexpr float kShare = 1.0f / (kLanes * kVectors * kWidth);
  float shares[kChains] = {};
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      shares[v % kChains] = fmaf(values[v][i], kShare, shares[v % kChains]);
    }
  }
  return (shares[0] + shares[1]) + (shares[2] + shares[3]);
}

// Of rows of f32 the mean is taken off twice: f32 rounds the mean of numbers that lie close together by more than they
// differ, and the division by their deviation would make that error a large one. The second mean is that error. Sums of
// f16 and bf16 that lie so close are exact.
constexpr int mean_passes(DType x) {
  return x == DType::f32 ? 2 : 1;
}

template <int kVectors, int kWidth>
__device__ inline void subtract(float (&values)[kVectors][kWidth], float mean) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[v][i] -= mean;
  }
}

// Takes the mean off the lane's numbers and adds up the squares of what is left.
template <int kVectors, int kWidth>
__device__ inline float center(float (&values)[kVectors][kWidth], float mean) {
  float parts[kChains] = {};
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      values[v][i] -= mean;
      parts[v % kChains] = fmaf(values[v][i], values[v][i], parts[v % kChains]);
    }
  }
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

// (x - mean) · rsqrt(variance + ε) · weight + bias; the squares are those of what the mean is taken
// off already. norm: weight [columns] and bias [columns] from the lane's first column on.
template <int kLanes, int kMeanPasses, int kRows, int kVectors, int kWidth>
__device__ inline void normalize(float (&rows)[kRows][kVectors][kWidth], const float* norm,
                                 float epsilon) {
  constexpr int kColumns = kLanes * kVectors * kWidth;
  float means[kRows];
  float squares[kRows];
  float factors[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) means[r] = mean_of_lane<kLanes>(rows[r]);
  sum_lanes<kLanes>(means);
#pragma unroll
  for (int pass = 1; pass < kMeanPasses; ++pass) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      subtract(rows[r], means[r]);
      means[r] = mean_of_lane<kLanes>(rows[r]);
    }
    sum_lanes<kLanes>(means);
  }
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
  for (int v = 0; v < kVectors; ++v) {
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

}  // namespace quire::cuda::any::index_rows
