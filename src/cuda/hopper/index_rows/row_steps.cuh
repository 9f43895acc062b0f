// SPDX-License-Identifier: Apache-2.0
// The steps of a row that a few lanes hold in registers: vector v of a lane is the eight columns from
// (lane + v · lanes) · 8 on. Lanes are the low bits of a vector's number, so that the two columns of a
// half-split pair, a quarter of the row apart, are in one lane, as those of an interleaved one are
// anyway; and every lane has as many pairs as any other.
#pragma once

#include "cuda/hopper/index_rows/hadamard_product.cuh"
#include "cuda/hopper/index_rows/params.h"
#include "cuda/rows/any_eight.cuh"

namespace quire::cuda::hopper {

inline constexpr int kRowVectors = 4;                   // of a lane
inline constexpr int kTurnedVectors = kRowVectors / 2;  // rope is the first half of the row

using RowValues = float[kRowVectors][kEight];
using RowAngles = float[kTurnedVectors][kEight];  // cos, sin in turns

template <int kLanes> inline constexpr int kRowColumns = kLanes* kRowVectors* kEight;

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

// rsqrt(variance) of rows whose squares are beyond f32, from numbers scaled down: ε is nothing there.
template <int kLanes> __device__ inline float huge_row_factor(const RowValues& values) {
  constexpr float kShare = 1.0f / kRowColumns<kLanes>;
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
// off already. norm: weight [columns] and bias [columns] from the lane's first column on.
template <int kLanes>
__device__ inline void normalize(RowValues& values, const float* norm, float epsilon) {
  constexpr float kShare = 1.0f / kRowColumns<kLanes>;
  float shares[kRowVectors] = {};  // a chain of sums for each vector
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) shares[v] = fmaf(values[v][i], kShare, shares[v]);
  }
  const float mean = sum_of_lanes<kLanes>((shares[0] + shares[1]) + (shares[2] + shares[3]));
  float parts[kRowVectors] = {};
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
      values[v][i] -= mean;
      parts[v] = fmaf(values[v][i], values[v][i], parts[v]);
    }
  }
  const float squares = sum_of_lanes<kLanes>((parts[0] + parts[1]) + (parts[2] + parts[3]));
  float factor = rsqrtf(fmaf(squares, kShare, epsilon));
  if (__any_sync(0xffffffffu, isinf(squares))) {
    const float of_huge = huge_row_factor<kLanes>(values);
    if (isinf(squares)) factor = of_huge;
  }
#pragma unroll
  for (int v = 0; v < kRowVectors; ++v) {
    float weight[kEight];
    float bias[kEight];
    load_shared(norm + v * kLanes * kEight, weight);
    load_shared(norm + kRowColumns<kLanes> + v * kLanes * kEight, bias);
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      values[v][i] = fmaf(values[v][i] * factor, weight[i], bias[i]);
    }
  }
}

// Which vectors of freqs_cis hold cos, sin of the lane's pairs. Half-split: eight of them, from pair lane · 8
// on; interleaved: four of each turned vector.
struct AngleVectors {
  int first;
  int step;

  __device__ int at(int v) const { return first + v * step; }
};
template <int kLanes> __device__ inline AngleVectors angle_vectors(bool interleaved, int lane) {
  return interleaved ? AngleVectors{lane, kLanes} : AngleVectors{2 * lane, 1};
}

template <int kLanes>
__device__ inline void load_angles(const IndexRowParams& params, int lane, std::int64_t position,
                                   RowAngles& angles) {
  const std::int64_t row = position < params.max_pos ? position : params.max_pos - 1;
  const std::byte* freqs = params.freqs + row * params.freqs_stride * params.freqs_size;
  const AngleVectors own = angle_vectors<kLanes>(params.interleaved, lane);
#pragma unroll
  for (int v = 0; v < kTurnedVectors; ++v) {
    load_float_eight(freqs + own.at(v) * kEight * params.freqs_size, params.freqs_dtype, angles[v]);
  }
}

__device__ inline void turn(float& a, float& b, float cosine, float sine) {
  const float turned = fmaf(a, cosine, -(b * sine));
  b = fmaf(a, sine, b * cosine);
  a = turned;
}

__device__ inline void rotate(bool interleaved, const RowAngles& angles, RowValues& values) {
  if (interleaved) {
#pragma unroll
    for (int v = 0; v < kTurnedVectors; ++v) {
#pragma unroll
      for (int j = 0; j < kEight; j += 2) {
        turn(values[v][j], values[v][j + 1], angles[v][j], angles[v][j + 1]);
      }
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < kEight; ++j) {
    turn(values[0][j], values[1][j], angles[2 * j / kEight][2 * j % kEight],
         angles[2 * j / kEight][2 * j % kEight + 1]);
  }
}

__device__ inline void sum_and_difference(float& a, float& b) {
  const float sum = a + b;
  b = a - b;
  a = sum;
}

// Between the vectors of a lane, and inside a vector over the bits from `distance` on.
__device__ inline void hadamard_of_lane(RowValues& values, int first_distance) {
#pragma unroll
  for (int distance = first_distance; distance < kEight; distance *= 2) {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kEight; ++i) {
        if ((i & distance) == 0) sum_and_difference(values[v][i], values[v][i + distance]);
      }
    }
  }
#pragma unroll
  for (int distance = 1; distance < kRowVectors; distance *= 2) {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kEight; ++i) {
        if ((v & distance) == 0) sum_and_difference(values[v][i], values[v + distance][i]);
      }
    }
  }
}

// How numbers of several lanes are added.
enum class HadamardWay : std::uint8_t { shuffles, product };

// Sums and differences over every bit of the column: three inside a vector, two between the lane's
// vectors, the others between lanes. Its factor is left to the caller.
template <int kLanes, HadamardWay kWay> __device__ inline void hadamard(RowValues& values) {
  if constexpr (kLanes == HadamardProduct::kLanes && kWay == HadamardWay::product) {
    hadamard_of_lane(values, 2);
    const HadamardProduct product;
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kEight; i += 4) product.apply(&values[v][i]);
    }
    return;
  }
  hadamard_of_lane(values, 1);
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
