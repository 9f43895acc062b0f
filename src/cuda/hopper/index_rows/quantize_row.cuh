// SPDX-License-Identifier: Apache-2.0
// The end of a row that a few lanes hold in registers: Hadamard, scale, codes.
#pragma once

#include "cuda/hopper/index_rows/known_steps.cuh"
#include "cuda/hopper/index_rows/row_steps.cuh"
#include "cuda/hopper/index_rows/target.cuh"
#include "cuda/rows/eight.cuh"

namespace quire::cuda::hopper {

template <int kWidth> __device__ inline float largest(const RowValues<kWidth>& values) {
  float amax[kRowVectors] = {};
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) amax[v] = fmaxf(amax[v], fabsf(values[v][i]));
  }
  return fmaxf(fmaxf(amax[0], amax[1]), fmaxf(amax[2], amax[3]));
}

template <int kWidth> __device__ inline void multiply(RowValues<kWidth>& values, float factor) {
#pragma unroll
  for (int v = 0; v < kRowVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[v][i] *= factor;
  }
}

// values · factor / scale, by a reciprocal, which is exact for powers of two. Scales near f32's smallest
// have none: then numbers and scale are raised first. A scale of 0 makes 0 of every number; NaN stays.
template <int kRows, int kWidth>
__device__ inline void divide(RowValues<kWidth> (&rows)[kRows], float factor,
                              const float (&scales)[kRows]) {
  constexpr float kSmallest = 0x1p-100f;
  constexpr float kRaise = 0x1p+80f;
  float raised[kRows];
  bool is_small = false;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    raised[r] = scales[r];
    is_small = is_small || scales[r] < kSmallest;
  }
  if (is_small) {  // one branch, so that the usual rows stay side by side
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (scales[r] >= kSmallest) continue;
      raised[r] *= kRaise;
      multiply(rows[r], kRaise);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    multiply(rows[r], raised[r] == 0.0f ? 0.0f : __fdividef(factor, raised[r]));
  }
}

// The same by scales of power_of_two_scale(), which all have a reciprocal.
template <int kRows, int kWidth>
__device__ inline void divide_by_powers(RowValues<kWidth> (&rows)[kRows], float factor,
                                        const float (&scales)[kRows]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(scales[r]));
    multiply(rows[r], factor * reciprocal);
  }
}

// Which row of a token, and which of its lanes.
struct RowOfToken {
  int head = 0;
  int lane = 0;
  float gate = 1.0f;  // lane 0's
};

template <int kWidth>
__device__ inline void store_codes(std::byte* to, const float (&values)[kWidth]) {
  static_assert(kWidth == 4 || kWidth == kEight);
  __builtin_assume(__isGlobal(to));  // which an address from shared memory does not say
  if constexpr (kWidth == kEight) {
    *reinterpret_cast<uint2*>(to) = encode_fp8<__NV_E4M3>(values);
  } else {
    const float eight[kEight] = {values[0], values[1], values[2], values[3]};
    *reinterpret_cast<unsigned*>(to) = encode_fp8<__NV_E4M3>(eight).x;
  }
}

// All lanes of a warp take part, whether their rows are written or not. Rows of one head of several tokens.
template <typename Config, typename Target, int kRows, int kWidth>
__device__ inline void quantize_rows(const IndexRowParams& params, const Target& target,
                                     const TokenTarget (&tokens)[kRows], const RowOfToken& row,
                                     RowValues<kWidth> (&rows)[kRows]) {
  constexpr int kLanes = Config::kLanes;
  const float factor = Config::Steps::has_hadamard(params) ? params.hadamard_factor : 1.0f;
  float scales[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (Config::Steps::has_hadamard(params)) hadamard<kLanes, Config::kHadamard>(rows[r]);
    scales[r] = largest(rows[r]);
  }
  largest_of_lanes<kLanes>(scales);
  if constexpr (kRows == 1) {  // where nothing else is in its way
    if (tokens[0].position < 0) return;
  }
  if constexpr (Config::Steps::kScalesArePowers) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) scales[r] = power_of_two_scale(scales[r] * factor);
    divide_by_powers(rows, factor, scales);
  } else {
#pragma unroll
    for (int r = 0; r < kRows; ++r) scales[r] = row_scale(params.rounding, scales[r] * factor);
    divide(rows, factor, scales);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (tokens[r].position < 0) continue;
    std::byte* codes = codes_of(target, tokens[r], row.head) + row.lane * kWidth;
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) store_codes(codes + v * kLanes * kWidth, rows[r][v]);
    if (row.lane == 0) store_scale(target, tokens[r], row.head, scales[r] * row.gate);
  }
}

}  // namespace quire::cuda::hopper
