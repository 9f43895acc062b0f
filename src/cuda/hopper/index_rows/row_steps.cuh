// SPDX-License-Identifier: Apache-2.0
// The steps of a row that lanes hold in registers, two vectors of eight columns each.
//
// A vector's number is the lane's with one more bit in front of bit `split`: the two vectors of a
// lane are 8 · 2^split columns apart. With 8 · 2^split = rope_dim / 2 both columns of every
// half-split pair are in one lane; interleaved pairs are in one vector anyway, and Hadamard's
// levels do not care which bit is the lane's own.
#pragma once

#include "cuda/hopper/index_rows/params.h"
#include "cuda/rows/any_eight.cuh"

namespace quire::cuda::hopper {

inline constexpr int kRowVectors = 2;  // of a lane

using RowValues = float[kRowVectors][kEight];

template <int kLanes> __device__ inline float sum_of_lanes(float value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, step);
  }
  return value;
}

template <int kLanes> __device__ inline float largest_of_lanes(float value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
  }
  return value;
}

__device__ inline void load_shared(const float* from, float (&values)[kEight]) {
  const auto* vectors = reinterpret_cast<const float4*>(from);
  Eight<DType::f32>::decode({vectors[0], vectors[1]}, values);
}

// Eight numbers of a type that tensors of weights and angles have.
__device__ inline void load_float_eight(const std::byte* from, DType dtype,
                                        float (&values)[kEight]) {
  if (dtype == DType::f32) {
    Eight<DType::f32>::decode({read_only<float4>(from), read_only<float4>(from + sizeof(float4))},
                              values);
  } else if (dtype == DType::bf16) {
    Eight<DType::bf16>::decode(read_only<uint4>(from), values);
  } else {
    Eight<DType::f16>::decode(read_only<uint4>(from), values);
  }
}

class LaneColumns {
 public:
  __device__ LaneColumns(int lane, int split) {
    const int low = lane & ((1 << split) - 1);
    first_ = (((lane - low) << 1) | low) * kEight;
    distance_ = kEight << split;
  }
  // The first column of the lane's vector v.
  __device__ int of(int v) const { return first_ + v * distance_; }

 private:
  int first_;
  int distance_;
};

// rsqrt(variance) of rows whose squares are beyond f32, from numbers scaled down: ε is nothing there.
template <int kLanes> __device__ inline float huge_row_factor(const RowValues& values) {
  constexpr float kShare = 1.0f / (kLanes * kRowVectors * kEight);
  constexpr float kDown = 0x1p-70f;
  float squares = 0.0f;
#pragma unroll
  for (int v = 0; v < kRowVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      const float small = values[v][i] * kDown;
      squares = fmaf(small, small, squares);
    }
  }
  return rsqrtf(sum_of_lanes<kLanes>(squares) * kShare) * kDown;
}

// (x - mean) · rsqrt(variance + ε) · weight + bias; the squares are those of what the mean is taken
// off already. norm: weight [columns], bias [columns].
template <int kLanes>
__device__ inline void normalize(RowValues& values, const LaneColumns& columns, const float* norm,
                                 float epsilon) {
  constexpr int kColumns = kLanes * kRowVectors * kEight;
  constexpr float kShare = 1.0f / kColumns;
  float mean = 0.0f;
#pragma unroll
  for (int v = 0; v < kRowVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kEight; ++i) mean = fmaf(values[v][i], kShare, mean);
  }
  mean = sum_of_lanes<kLanes>(mean);
  float squares = 0.0f;
#pragma unroll
  for (int v = 0; v < kRowVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      values[v][i] -= mean;
      squares = fmaf(values[v][i], values[v][i], squares);
    }
  }
  squares = sum_of_lanes<kLanes>(squares);
  float factor = rsqrtf(fmaf(squares, kShare, epsilon));
  if (__any_sync(0xffffffffu, isinf(squares))) {
    const float of_huge = huge_row_factor<kLanes>(values);
    if (isinf(squares)) factor = of_huge;
  }
#pragma unroll
  for (int v = 0; v < kRowVectors; ++v) {
    float weight[kEight];
    float bias[kEight];
    load_shared(norm + columns.of(v), weight);
    load_shared(norm + kColumns + columns.of(v), bias);
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      values[v][i] = fmaf(values[v][i] * factor, weight[i], bias[i]);
    }
  }
}

// cos, sin of the lane's pairs, in the order of freqs_cis. Lanes whose vectors do not turn keep what
// they have.
__device__ inline void load_angles(const IndexRowParams& params, const LaneColumns& columns,
                                   std::int64_t position, RowValues& angles) {
  const std::int64_t row = position < params.max_pos ? position : params.max_pos - 1;
  const std::byte* freqs =
      params.freqs + row * params.freqs_stride * (bits(params.freqs_dtype) / 8);
#pragma unroll
  for (int v = 0; v < kRowVectors; ++v) {
    const int first = params.interleaved ? columns.of(v) : 2 * columns.of(0) + v * kEight;
    if (first >= params.rope_dim) continue;
    load_float_eight(freqs + first * (bits(params.freqs_dtype) / 8), params.freqs_dtype, angles[v]);
  }
}

__device__ inline void turn(float& a, float& b, float cosine, float sine) {
  const float turned = fmaf(a, cosine, -(b * sine));
  b = fmaf(a, sine, b * cosine);
  a = turned;
}

__device__ inline void rotate(const IndexRowParams& params, const LaneColumns& columns,
                              const RowValues& angles, RowValues& values) {
  if (params.interleaved) {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
      if (columns.of(v) >= params.rope_dim) continue;
#pragma unroll
      for (int j = 0; j < kEight; j += 2) {
        turn(values[v][j], values[v][j + 1], angles[v][j], angles[v][j + 1]);
      }
    }
    return;
  }
  if (columns.of(0) >= params.rope_dim) return;
#pragma unroll
  for (int j = 0; j < kEight; ++j) {
    turn(values[0][j], values[1][j], angles[2 * j / kEight][2 * j % kEight],
         angles[2 * j / kEight][2 * j % kEight + 1]);
  }
}

// Sums and differences over every bit of the column: three inside a vector, one between the lane's
// two, the others between lanes. Its factor is left to the caller.
template <int kLanes> __device__ inline void hadamard(RowValues& values) {
#pragma unroll
  for (int distance = 1; distance < kEight; distance *= 2) {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kEight; ++i) {
        if ((i & distance) != 0) continue;
        const float a = values[v][i];
        const float b = values[v][i + distance];
        values[v][i] = a + b;
        values[v][i + distance] = a - b;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    const float a = values[0][i];
    const float b = values[1][i];
    values[0][i] = a + b;
    values[1][i] = a - b;
  }
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) {
    const float sign = (threadIdx.x & step) == 0 ? 1.0f : -1.0f;
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kEight; ++i) {
        const float other = __shfl_xor_sync(0xffffffffu, values[v][i], step);
        values[v][i] = fmaf(values[v][i], sign, other);
      }
    }
  }
}

}  // namespace quire::cuda::hopper
