// SPDX-License-Identifier: Apache-2.0
// The steps of a row that a few lanes hold in registers: vector v of a lane is the `width` columns from
// (lane + v · lanes) · width on. Lanes are the low bits of a vector's number, so that the two columns of a
// half-split pair, a quarter of the row apart, are in one lane, as those of an interleaved one are
// anyway; and every lane has as many pairs as any other.
#pragma once

#include "cuda/any/index_rows/params.h"
#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda::any::index_rows {

inline constexpr int kRowVectors = 4;                   // of a lane, but for keys with Hadamard
inline constexpr int kTurnedVectors = kRowVectors / 2;  // rope is the first half of the row

template <int kWidth, int kVectors = kRowVectors> using RowValues = float[kVectors][kWidth];
// cos, sin in turns
template <int kWidth, int kVectors = kRowVectors> using RowAngles = float[kVectors / 2][kWidth];

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
    Eight<DType::f32>::decode({read_only<float4>(from), read_only<float4>(from + sizeof(float4))},
                              values);
  } else if (dtype == DType::bf16) {
    Eight<DType::bf16>::decode(read_only<uint4>(from), values);
  } else {
    Eight<DType::f16>::decode(read_only<uint4>(from), values);
  }
}

// Which vector of freqs_cis, as wide as the lane's, is the v-th that holds cos, sin of its pairs. Interleaved: those of
// the turned vectors themselves; half-split: two neighbours for each vector of the first quarter.
template <int kLanes> __device__ inline int angle_vector(bool interleaved, int lane, int v) {
  return interleaved ? lane + v * kLanes : 2 * (lane + v / 2 * kLanes) + v % 2;
}

template <int kLanes>
__device__ inline void load_angles(const IndexRowParams& params, int lane, std::int64_t position,
                                   RowAngles<kVec8>& angles) {
  const std::int64_t row = position < params.max_pos ? position : params.max_pos - 1;
  const std::byte* freqs = params.freqs + row * params.freqs_stride * params.freqs_size;
#pragma unroll
  for (int v = 0; v < kTurnedVectors; ++v) {
    const int from = angle_vector<kLanes>(params.interleaved, lane, v) * kVec8;
    load_float_vec8(freqs + from * params.freqs_size, params.freqs_dtype, angles[v]);
  }
}

__device__ inline void turn(float& a, float& b, float cosine, float sine) {
  const float turned = fmaf(a, cosine, -(b * sine));
  b = fmaf(a, sine, b * cosine);
  a = turned;
}

template <int kVectors, int kWidth>
__device__ inline void rotate(bool interleaved, const float (&angles)[kVectors / 2][kWidth],
                              float (&values)[kVectors][kWidth]) {
  if (interleaved) {
#pragma unroll
    for (int v = 0; v < kVectors / 2; ++v) {
#pragma unroll
      for (int j = 0; j < kWidth; j += 2) {
        turn(values[v][j], values[v][j + 1], angles[v][j], angles[v][j + 1]);
      }
    }
    return;
  }
#pragma unroll
  for (int v = 0; v < kVectors / 4; ++v) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float(&pair)[kWidth] = angles[2 * v + 2 * j / kWidth];
      turn(values[v][j], values[v + kVectors / 4][j], pair[2 * j % kWidth],
           pair[2 * j % kWidth + 1]);
    }
  }
}

// What happens to the rows of a call, where a kernel is made for it. Branches on the call's parameters cost a copy of
// the row's registers each, a tenth of the instructions together.

enum class RowSteps : std::uint8_t {
  any,  // as the parameters say
  turn,
  turn_hadamard,
  turn_interleaved,
  turn_interleaved_hadamard,
};

// Rows with steps other than `any` are turned.
template <RowSteps kSteps> struct KnownSteps {
  static constexpr bool kIsAny = kSteps == RowSteps::any;
  static constexpr bool kHasHadamard =  // known when compiled
      kSteps == RowSteps::turn_hadamard || kSteps == RowSteps::turn_interleaved_hadamard;

  static constexpr bool kScalesArePowers = false;  // of two, known when compiled
  __device__ static bool turns(const IndexRowParams& params) {
    return !kIsAny || params.freqs != nullptr;
  }
  __device__ static bool is_interleaved(const IndexRowParams& params) {
    if constexpr (kIsAny) return params.interleaved;
    return kSteps == RowSteps::turn_interleaved || kSteps == RowSteps::turn_interleaved_hadamard;
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

// Of a call whose rows are turned.
inline RowSteps steps_of(const IndexRowParams& params) {
  if (params.interleaved) {
    return params.hadamard ? RowSteps::turn_interleaved_hadamard : RowSteps::turn_interleaved;
  }
  return params.hadamard ? RowSteps::turn_hadamard : RowSteps::turn;
}

template <RowSteps kSteps> struct StepsTag { static constexpr RowSteps kValue = kSteps; };

// Calls `launch` with the tag of that call's steps.
template <typename Launch> void for_steps_of(const IndexRowParams& params, Launch launch) {
  switch (steps_of(params)) {
    case RowSteps::turn_hadamard:
      return launch(StepsTag<RowSteps::turn_hadamard>{});
    case RowSteps::turn_interleaved:
      return launch(StepsTag<RowSteps::turn_interleaved>{});
    case RowSteps::turn_interleaved_hadamard:
      return launch(StepsTag<RowSteps::turn_interleaved_hadamard>{});
    default:
      return launch(StepsTag<RowSteps::turn>{});
  }
}

}  // namespace quire::cuda::any::index_rows
