// SPDX-License-Identifier: Apache-2.0
// The end of a row that a few lanes hold in registers: its scale and its codes.
#pragma once

#include "cuda/any/index_rows/row_steps.cuh"
#include "cuda/any/index_rows/target.cuh"
#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda::any::index_rows {

template <int kVectors, int kWidth>
__device__ inline float largest(const float (&values)[kVectors][kWidth]) {
  float amax[kRowVectors] = {};
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      amax[v % kRowVectors] = fmaxf(amax[v % kRowVectors], fabsf(values[v][i]));
    }
  }
  return fmaxf(fmaxf(amax[0], amax[1]), fmaxf(amax[2], amax[3]));
}

template <int kVectors, int kWidth>
__device__ inline void multiply(float (&values)[kVectors][kWidth], float factor) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[v][i] *= factor;
  }
}

// values · factor / scale, by a reciprocal, which is exact for powers of two. Scales near f32's smallest
// have none: then numbers and scale are raised first. A scale of 0 makes 0 of every number; NaN stays.
template <int kRows, typename Row>
__device__ inline void divide(Row (&rows)[kRows], float factor, const float (&scales)[kRows]) {
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
template <int kRows, typename Row>
__device__ inline void divide_by_powers(Row (&rows)[kRows], float factor,
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
  unsigned gate_bits = 0;  // lane 0's
};

// Codes of a lane's columns: its vectors, `lanes` vectors from one to the next.
template <int kLanes, int kVectors, int kWidth>
__device__ inline void store_vectors(std::byte* to, int lane,
                                     const float (&values)[kVectors][kWidth]) {
  static_assert(kWidth == 4 || kWidth == kVec8);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    std::byte* codes = to + (lane + v * kLanes) * kWidth;
    __builtin_assume(__isGlobal(codes));  // which an address from shared memory does not say
    if constexpr (kWidth == kVec8) {
      *reinterpret_cast<uint2*>(codes) = encode_fp8<__NV_E4M3>(values[v]);
    } else {
      const float eight[kVec8] = {values[v][0], values[v][1], values[v][2], values[v][3]};
      *reinterpret_cast<unsigned*>(codes) = encode_fp8<__NV_E4M3>(eight).x;
    }
  }
}

// The same of one run of columns.
template <int kVectors, int kWidth>
__device__ inline void store_run(std::byte* to, int lane, const float (&values)[kVectors][kWidth]) {
  constexpr int kRun = kVectors * kWidth;
#pragma unroll
  for (int first = 0; first < kRun; first += 2 * kVec8) {
    uint2 halves[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float eight[kVec8];
#pragma unroll
      for (int i = 0; i < kVec8; ++i) {
        const int column = first + h * kVec8 + i;
        eight[i] = values[column / kWidth][column % kWidth];
      }
      halves[h] = encode_fp8<__NV_E4M3>(eight);
    }
    std::byte* codes = to + lane * kRun + first;
    __builtin_assume(__isGlobal(codes));
    *reinterpret_cast<uint4*>(codes) =
        make_uint4(halves[0].x, halves[0].y, halves[1].x, halves[1].y);
  }
}

// All lanes of a warp take part, whether their rows are written or not. Rows of one head of several tokens.
template <typename Config, typename Target, int kRows, typename Row>
__device__ inline void quantize_rows(const IndexRowParams& params, const Target& target,
                                     const TokenTarget (&tokens)[kRows], const RowOfToken& row,
                                     Row (&rows)[kRows]) {
  constexpr int kLanes = Config::kLanes;
  const float factor = Config::Steps::has_hadamard(params) ? params.hadamard_factor : 1.0f;
  float scales[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) scales[r] = largest(rows[r]);
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
    std::byte* codes = codes_of(target, tokens[r], row.head);
    if constexpr (Config::kLanesHaveRuns) {
      store_run(codes, row.lane, rows[r]);
    } else {
      store_vectors<kLanes>(codes, row.lane, rows[r]);
    }
    if (row.lane == 0) {
      store_scale(target, tokens[r], row.head, scales[r] * gate_of(target, row.gate_bits));
    }
  }
}

}  // namespace quire::cuda::any::index_rows
