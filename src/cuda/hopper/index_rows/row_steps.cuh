// SPDX-License-Identifier: Apache-2.0
// The steps of a row that a few lanes hold in registers: vector v of a lane is the `width` columns from
// (lane + v · lanes) · width on. Lanes are the low bits of a vector's number, so that the two columns of a
// half-split pair, a quarter of the row apart, are in one lane, as those of an interleaved one are
// anyway; and every lane has as many pairs as any other.
#pragma once

#include "cuda/hopper/index_rows/hadamard_product.cuh"
#include "cuda/hopper/index_rows/params.h"
#include "cuda/rows/any_eight.cuh"

namespace quire::cuda::hopper {

inline constexpr int kRowVectors = 4;                   // of a lane
inline constexpr int kTurnedVectors = kRowVectors / 2;  // rope is the first half of the row

template <int kWidth> using RowValues = float[kRowVectors][kWidth];
template <int kWidth> using RowAngles = float[kTurnedVectors][kWidth];  // cos, sin in turns

// Of several rows at once, so that their exchanges overlap.
template <int kLanes, int kRows> __device__ inline void sum_lanes(float (&values)[kRows]) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
#pragma unroll
    for (float& value : values) value += __shfl_xor_sync(0xffffffffu, value, step);
  }
}

template <int kLanes, int kRows> __device__ inline void largest_of_lanes(float (&values)[kRows]) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
#pragma unroll
    for (float& value : values) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
  }
}

// As many numbers as `values` has, four or eight.
template <int kWidth>
__device__ inline void load_shared(const float* from, float (&values)[kWidth]) {
#pragma unroll
  for (int i = 0; i < kWidth; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    values[i] = four.x;
    values[i + 1] = four.y;
    values[i + 2] = four.z;
    values[i + 3] = four.w;
  }
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

// Which vectors of freqs_cis, as wide as the lane's, hold cos, sin of its pairs. Half-split: neighbours, from pair
// lane · width on; interleaved: those of the turned vectors themselves.
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
                                   RowAngles<kEight>& angles) {
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

template <int kWidth>
__device__ inline void rotate(bool interleaved, const RowAngles<kWidth>& angles,
                              RowValues<kWidth>& values) {
  if (interleaved) {
#pragma unroll
    for (int v = 0; v < kTurnedVectors; ++v) {
#pragma unroll
      for (int j = 0; j < kWidth; j += 2) {
        turn(values[v][j], values[v][j + 1], angles[v][j], angles[v][j + 1]);
      }
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    turn(values[0][j], values[1][j], angles[2 * j / kWidth][2 * j % kWidth],
         angles[2 * j / kWidth][2 * j % kWidth + 1]);
  }
}

__device__ inline void sum_and_difference(float& a, float& b) {
  const float sum = a + b;
  b = a - b;
  a = sum;
}

// Between the vectors of a lane, and inside a vector over the bits from `distance` on.
template <int kWidth>
__device__ inline void hadamard_of_lane(RowValues<kWidth>& values, int first_distance) {
#pragma unroll
  for (int distance = first_distance; distance < kWidth; distance *= 2) {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if ((i & distance) == 0) sum_and_difference(values[v][i], values[v][i + distance]);
      }
    }
  }
#pragma unroll
  for (int distance = 1; distance < kRowVectors; distance *= 2) {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if ((v & distance) == 0) sum_and_difference(values[v][i], values[v + distance][i]);
      }
    }
  }
}

// How numbers of several lanes are added.
enum class HadamardWay : std::uint8_t { shuffles, product };

// Over the bits of the lane from `first_step` on.
template <int kLanes, int kWidth>
__device__ inline void hadamard_between_lanes(RowValues<kWidth>& values, int first_step) {
#pragma unroll
  for (int step = first_step; step < kLanes; step *= 2) {
    const float sign = (threadIdx.x & step) == 0 ? 1.0f : -1.0f;
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float other = __shfl_xor_sync(0xffffffffu, values[v][i], step);
        values[v][i] = fmaf(values[v][i], sign, other);
      }
    }
  }
}

// Sums and differences over every bit of the column: two or three inside a vector, two between the lane's
// vectors, the others between lanes. Its factor is left to the caller.
template <int kLanes, HadamardWay kWay, int kWidth>
__device__ inline void hadamard(RowValues<kWidth>& values) {
  if constexpr (kLanes >= HadamardProduct::kLanes && kWay == HadamardWay::product) {
    hadamard_of_lane(values, 2);
    const HadamardProduct product;
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kWidth; i += 4) product.apply(&values[v][i]);
    }
    hadamard_between_lanes<kLanes>(values, HadamardProduct::kLanes);
    return;
  }
  hadamard_of_lane(values, 1);
  hadamard_between_lanes<kLanes>(values, 1);
}

}  // namespace quire::cuda::hopper
