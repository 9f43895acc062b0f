// SPDX-License-Identifier: Apache-2.0
// The end of a row that a few lanes hold in registers: Hadamard, scale, codes.
#pragma once

#include "cuda/hopper/index_rows/known_steps.cuh"
#include "cuda/hopper/index_rows/row_steps.cuh"
#include "cuda/hopper/index_rows/target.cuh"
#include "cuda/rows/eight.cuh"

namespace quire::cuda::hopper {

__device__ inline float largest(const RowValues& values) {
  float amax[kRowVectors] = {};
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) amax[v] = fmaxf(amax[v], fabsf(values[v][i]));
  }
  return fmaxf(fmaxf(amax[0], amax[1]), fmaxf(amax[2], amax[3]));
}

__device__ inline void multiply(RowValues& values, float factor) {
#pragma unroll
  for (int v = 0; v < kRowVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kEight; ++i) values[v][i] *= factor;
  }
}

// values · factor / scale, by a reciprocal, which is exact for powers of two. Scales near f32's smallest
// have none: then numbers and scale are raised first. A scale of 0 makes 0 of every number; NaN stays.
__device__ inline void divide(RowValues& values, float factor, float scale) {
  constexpr float kRaise = 0x1p+80f;
  if (scale < 0x1p-100f) {
    scale *= kRaise;
    multiply(values, kRaise);
  }
  multiply(values, scale == 0.0f ? 0.0f : __fdividef(factor, scale));
}

// Which row of a token, and which of its lanes.
struct RowOfToken {
  int head = 0;
  int lane = 0;
  float gate = 1.0f;  // lane 0's
};

// All lanes of a warp take part, whether their row is written or not.
template <typename Config, typename Target>
__device__ inline void quantize_row(const IndexRowParams& params, const Target& target,
                                    const TokenTarget& token, const RowOfToken& row,
                                    RowValues& values) {
  constexpr int kLanes = Config::kLanes;
  if (Config::Steps::has_hadamard(params)) hadamard<kLanes, Config::kHadamard>(values);
  const float amax = largest_of_lanes<kLanes>(largest(values)) * params.hadamard_factor;
  if (token.position < 0) return;
  const float scale = row_scale(params.rounding, amax);
  divide(values, params.hadamard_factor, scale);
  std::byte* codes = codes_of(target, token, row.head) + row.lane * kEight;
  __builtin_assume(__isGlobal(codes));  // which it does not say, coming from shared memory
#pragma unroll
  for (int v = 0; v < kRowVectors; ++v) {
    *reinterpret_cast<uint2*>(codes + v * kLanes * kEight) = encode_fp8<__NV_E4M3>(values[v]);
  }
  if (row.lane == 0) store_scale(target, token, row.head, scale * row.gate);
}

}  // namespace quire::cuda::hopper
