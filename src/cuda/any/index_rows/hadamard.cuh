// SPDX-License-Identifier: Apache-2.0
// Sums and differences over every bit of the column, of a row that a few lanes hold in registers (row_steps.cuh): some
// bits number the columns of a vector, some a lane's vectors, the others the lanes. Its factor is left to the caller.
#pragma once

#include "cuda/any/index_rows/row_steps.cuh"
#include "quire/dtype.h"

namespace quire::cuda::any::index_rows {

// Three levels of Hadamard by the tensor cores: over the two bits that number the four lanes of a row and over the
// lowest bit of the column, which by shuffles are five instructions for each number, two of them the slow ones.
//
// D = A · H of mma m16n8k8: row g of A is a row of 128 columns, and so is row g + 8 (other columns of the same one).
//   A: lane 4g + t holds k = t and k = t + 4     k = t + 4b     t: the lane of the row, b: the column's lowest bit
//   D: lane 4g + t holds n = 2t and n = 2t + 1   n = 2t + b     so that every number comes back to where it was
//
// tf32 keeps 11 bits of a number: the rest goes through a product of its own. What is lost is 2^-22 of it.

class HadamardProduct {
 public:
  static constexpr int kLanes = 4;  // of a row

  __device__ HadamardProduct() {
    const unsigned k = threadIdx.x % 4;
    const unsigned n = threadIdx.x % 32 / 4;
    const unsigned odd = __popc(k & n >> 1);  // sign of H[k][n], k < 4
    signs_[0] = odd % 2 == 0 ? kOne : kMinusOne;
    signs_[1] = (odd + n) % 2 == 0 ? kOne : kMinusOne;
    // Kept in registers, not worked out for every row.
    asm volatile("" : "+r"(signs_[0]), "+r"(signs_[1]));
  }

  // Of the pairs (values[0], values[1]) and (values[2], values[3]).
  __device__ void apply(float* values) const {
    unsigned high[4];
    unsigned low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      high[i] = __float_as_uint(values[i]) & 0xffffe000u;
      // Infinity less itself is not a number; the smaller of that and a number is one.
      low[i] = __float_as_uint(fminf(values[i] - __uint_as_float(high[i]), kLargestLow));
    }
    float sums[4] = {};
    multiply_add(low, sums);
    multiply_add(high, sums);
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = sums[i];
  }

 private:
  static constexpr unsigned kOne = 0x3f800000;
  static constexpr unsigned kMinusOne = 0xbf800000;
  static constexpr float kLargestLow = 0x1p+118f;

  __device__ void multiply_add(const unsigned (&a)[4], float (&d)[4]) const {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[2]), "r"(a[1]), "r"(a[3]), "r"(signs_[0]), "r"(signs_[1]));
  }

  unsigned signs_[2];
};

// The same of 16-bit numbers as they were loaded, which are neither split nor decoded first, and over the third bit of
// the column too: D = A · H of mma m16n8k16, once for the sums and once for the differences of words two apart.
//   A: lane 4g + t holds k = 2t, 2t + 1 (a word) and k = 2t + 8, 2t + 9 (the other one)
template <DType kX> class RawHadamardProduct {
 public:
  __device__ RawHadamardProduct() {
    const unsigned k = threadIdx.x % 4 * 2;
    const unsigned n = threadIdx.x % 32 / 4;
    signs_ = sign(k, n) | sign(k + 1, n) << 16;
    asm volatile("" : "+r"(signs_));  // as above
  }

  __device__ void apply(const uint4& raw, float (&values)[8]) const {
    multiply(raw, signs_, &values[0]);
    multiply(raw, signs_ ^ 0x80008000u, &values[4]);
  }

 private:
  static_assert(kX == DType::bf16 || kX == DType::f16);

  __device__ static unsigned sign(unsigned k, unsigned n) {
    constexpr unsigned kOne = kX == DType::bf16 ? 0x3f80 : 0x3c00;
    return kOne | (__popc(k & n) % 2 == 0 ? 0u : 0x8000u);
  }

  // `other`: the signs of the words two further on.
  __device__ void multiply(const uint4& raw, unsigned other, float* d) const {
    if constexpr (kX == DType::bf16) {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
          : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
          : "r"(raw.x), "r"(raw.y), "r"(raw.z), "r"(raw.w), "r"(signs_), "r"(other), "f"(0.0f));
    } else {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
          : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
          : "r"(raw.x), "r"(raw.y), "r"(raw.z), "r"(raw.w), "r"(signs_), "r"(other), "f"(0.0f));
    }
  }

  unsigned signs_;
};

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

// kRawVectors: 0, or the second half of the row, which has been through a RawHadamardProduct.
template <int kRawVectors, int kVectors>
__device__ inline void hadamard_by_product(const HadamardProduct& product,
                                           float (&values)[kVectors][kVec8]) {
  static_assert(kRawVectors == 0 || kRawVectors == kVectors / 2);
#pragma unroll
  for (int v = 0; v < kVectors / 2; ++v) {
    if constexpr (kRawVectors == 0) {
      hadamard_of_vector(product, values[2 * v]);
      hadamard_of_vector(product, values[2 * v + 1]);
    } else {
      hadamard_of_vector(product, values[v]);
      hadamard_at(values[kVectors / 2 + v], 2);
    }
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
