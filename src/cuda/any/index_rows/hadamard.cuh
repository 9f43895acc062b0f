// SPDX-License-Identifier: Apache-2.0
// Sums and differences over every bit of the column, of a row that a few lanes hold in registers (row_steps.cuh): some
// bits number the columns of a vector, some a lane's vectors, the others the lanes. Its factor is left to the caller.
#pragma once

#include "cuda/any/index_rows/hadamard_product.cuh"
#include "cuda/any/index_rows/row_steps.cuh"

namespace quire::cuda::any::index_rows {

__device__ inline void sum_and_difference(float& a, float& b) {
  const float sum = a + b;
  b = a - b;
  a = sum;
}

// Inside a vector over one bit of the column, then over those from `first_distance` on.
template <int kWidth> __device__ inline void hadamard_at(float (&vector)[kWidth], int distance) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if ((i & distance) == 0) sum_and_difference(vector[i], vector[i + distance]);
  }
}
template <int kWidth>
__device__ inline void hadamard_in_vector(float (&vector)[kWidth], int first_distance) {
#pragma unroll
  for (int distance = first_distance; distance < kWidth; distance *= 2) {
    hadamard_at(vector, distance);
  }
}

template <int kVectors, int kWidth>
__device__ inline void hadamard_between_vectors(float (&values)[kVectors][kWidth]) {
#pragma unroll
  for (int distance = 1; distance < kVectors; distance *= 2) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if ((v & distance) == 0) sum_and_difference(values[v][i], values[v + distance][i]);
      }
    }
  }
}

// -1 where the lane's bit is set.
__device__ inline float sign_of_lane(int bit) {
  return (threadIdx.x & bit) == 0 ? 1.0f : -1.0f;
}

// Any number of lanes.
template <int kLanes, int kVectors, int kWidth>
__device__ inline void hadamard_by_shuffles(float (&values)[kVectors][kWidth]) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) hadamard_in_vector(values[v], 1);
  hadamard_between_vectors(values);
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) {
    const float sign = sign_of_lane(step);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float other = __shfl_xor_sync(0xffffffffu, values[v][i], step);
        values[v][i] = fmaf(values[v][i], sign, other);
      }
    }
  }
}

// Four lanes, all bits of a vector and of the lanes.
__device__ inline void hadamard_of_vector(const HadamardProduct& product, float (&vector)[kVec8]) {
  hadamard_in_vector(vector, 2);
  product.apply(&vector[0]);
  product.apply(&vector[4]);
}
template <int kVectors>
__device__ inline void hadamard_by_product(const HadamardProduct& product,
                                           float (&values)[kVectors][kVec8]) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) hadamard_of_vector(product, values[v]);
  hadamard_between_vectors(values);
}

// The same where the second half of the row has been through a RawHadamardProduct.
template <int kVectors>
__device__ inline void hadamard_by_products(const HadamardProduct& product,
                                            float (&values)[kVectors][kVec8]) {
#pragma unroll
  for (int v = 0; v < kVectors / 2; ++v) {
    hadamard_of_vector(product, values[v]);
    hadamard_at(values[kVectors / 2 + v], 2);
  }
  hadamard_between_vectors(values);
}

// As many vectors as lanes: every bit of the vector's number changes places with one of the lane's. Two lanes that keep a
// sum or a difference each send one number for two of theirs, and what a lane has in the end is one run of
// columns: values[v][i] is column (lane · vectors + v) · width + i. A sign is part of every sum, so that lanes do the same:
//   lane bit 0 keeps a + b and sends a - b; bit 1 keeps a - b and sends -(a + b)
template <int kLanes, int kVectors, int kWidth>
__device__ inline void hadamard_transposing(float (&values)[kVectors][kWidth]) {
  static_assert(kVectors == kLanes);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) hadamard_in_vector(values[v], 1);
#pragma unroll
  for (int bit = 1; bit < kLanes; bit *= 2) {
    const float sign = sign_of_lane(bit);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if ((v & bit) != 0) continue;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        float& a = values[v][i];
        float& b = values[v + bit][i];
        const float kept = fmaf(sign, b, a);
        const float other = __shfl_xor_sync(0xffffffffu, fmaf(sign, a, -b), bit);
        a = fmaf(-sign, other, kept);
        b = fmaf(sign, kept, other);
      }
    }
  }
}

}  // namespace quire::cuda::any::index_rows
