// SPDX-License-Identifier: Apache-2.0
// The steps of a row that a few lanes hold in registers: vector v of a lane is the `width` columns from
// (lane + v · lanes) · width on. Lanes are the low bits of a vector's number, so that the two columns of a
// half-split pair, a quarter of the row apart, are in one lane, as those of an interleaved one are
// anyway; and every lane has as many pairs as any other.
#pragma once

#include "cuda/any/index_rows/params.h"
#include "cuda/common/rows/rope_angles.cuh"
#include "cuda/common/rows/vec8.cuh"
#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda::any::index_rows {

inline constexpr int kRowVectors = 4;                    // of a lane, but for keys with Hadamard
inline constexpr int kRotatedVectors = kRowVectors / 2;  // rope is the first half of the row

template <int kWidth, int kVectors = kRowVectors> using RowValues = float[kVectors][kWidth];
// cos, sin, cos, sin, …
template <int kWidth, int kVectors = kRowVectors> using RowAngles = float[kVectors / 2][kWidth];

// As many numbers as `values` has: two, four or eight.
template <int kWidth>
__device__ inline void load_shared(const float* from, float (&values)[kWidth]) {
  if constexpr (kWidth == 2) {
    const float2 two = *reinterpret_cast<const float2*>(from);
    values[0] = two.x;
    values[1] = two.y;
    return;
  }
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
__device__ inline void load_float_vec8(const std::byte* from, DType dtype, float (&values)[kVec8]) {
  if (dtype == DType::f32) {
    Vec8<DType::f32>::decode({read_only<float4>(from), read_only<float4>(from + sizeof(float4))},
                             values);
  } else if (dtype == DType::bf16) {
    Vec8<DType::bf16>::decode(read_only<uint4>(from), values);
  } else {
    Vec8<DType::f16>::decode(read_only<uint4>(from), values);
  }
}

// Which vector of freqs_cis, as wide as the lane's, is the v-th that holds cos, sin of its pairs. Interleaved: those of
// the rotated vectors themselves; half-split: two neighbours for each vector of the first quarter.
template <int kLanes> __device__ inline int angle_vector(bool interleaved, int lane, int v) {
  return interleaved ? lane + v * kLanes : 2 * (lane + v / 2 * kLanes) + v % 2;
}

template <int kLanes>
__device__ inline void load_angles(const IndexRowParams& params, int lane, std::int64_t position,
                                   RowAngles<kVec8>& angles) {
  const std::int64_t row = position < params.max_pos ? position : params.max_pos - 1;
  const std::byte* freqs = params.freqs + row * params.freqs_stride * params.freqs_size;
#pragma unroll
  for (int v = 0; v < kRotatedVectors; ++v) {
    const int from = angle_vector<kLanes>(params.interleaved, lane, v) * kVec8;
    load_float_vec8(freqs + from * params.freqs_size, params.freqs_dtype, angles[v]);
  }
}

template <int kVectors, int kWidth>
__device__ inline void rotate(bool interleaved, const float (&angles)[kVectors / 2][kWidth],
                              float (&values)[kVectors][kWidth]) {
  if (interleaved) {
#pragma unroll
    for (int v = 0; v < kVectors / 2; ++v) {
#pragma unroll
      for (int j = 0; j < kWidth; j += 2) {
        rotate_pair(values[v][j], values[v][j + 1], angles[v][j], angles[v][j + 1]);
      }
    }
    return;
  }
#pragma unroll
  for (int v = 0; v < kVectors / 4; ++v) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float(&pair)[kWidth] = angles[2 * v + 2 * j / kWidth];
      rotate_pair(values[v][j], values[v + kVectors / 4][j], pair[2 * j % kWidth],
                  pair[2 * j % kWidth + 1]);
    }
  }
}

// LayerNorm of rows that lanes hold; the rows of a lane share its reads of weight and bias.

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

// What happens to the rows of a call, where a kernel is made for it. Branches on the call's parameters cost a copy of
// the row's registers each, a tenth of the instructions together.

enum class RowSteps : std::uint8_t {
  any,  // as the parameters say
  rotate,
  rotate_hadamard,
  rotate_interleaved,
  rotate_interleaved_hadamard,
};

// Rows with steps other than `any` are rotated.
template <RowSteps kSteps> struct KnownSteps {
  static constexpr bool kIsAny = kSteps == RowSteps::any;
  static constexpr bool kHasHadamard =  // known when compiled
      kSteps == RowSteps::rotate_hadamard || kSteps == RowSteps::rotate_interleaved_hadamard;

  static constexpr bool kScalesArePowers = false;  // of two, known when compiled
  __device__ static bool rotates(const IndexRowParams& params) {
    return !kIsAny || params.freqs != nullptr;
  }
  __device__ static bool is_interleaved(const IndexRowParams& params) {
    if constexpr (kIsAny) return params.interleaved;
    return kSteps == RowSteps::rotate_interleaved ||
           kSteps == RowSteps::rotate_interleaved_hadamard;
  }
  __device__ static bool has_hadamard(const IndexRowParams& params) {
    if constexpr (kIsAny) return params.hadamard;
    return kHasHadamard;
  }
};

// Keys with steps other than `any` also have a norm, angles in f32 and scales that are powers of two.
template <RowSteps kSteps> struct KnownKeySteps : KnownSteps<kSteps> {
  using KnownSteps<kSteps>::kIsAny;
  static constexpr bool kScalesArePowers = !kIsAny;

  __device__ static bool has_norm(const IndexRowParams& params) {
    return !kIsAny || params.norm_weight.data != nullptr;
  }
  __device__ static DType freqs_dtype(const IndexRowParams& params) {
    return kIsAny ? params.freqs_dtype : DType::f32;
  }
};

// start<steps>(), those of a call whose rows are rotated.
template <typename Start> void with_steps(const IndexRowParams& params, const Start& start) {
  if (params.interleaved && params.hadamard) {
    return start.template operator()<RowSteps::rotate_interleaved_hadamard>();
  }
  if (params.interleaved) return start.template operator()<RowSteps::rotate_interleaved>();
  if (params.hadamard) return start.template operator()<RowSteps::rotate_hadamard>();
  start.template operator()<RowSteps::rotate>();
}

}  // namespace quire::cuda::any::index_rows
