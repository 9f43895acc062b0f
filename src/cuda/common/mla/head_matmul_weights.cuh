// SPDX-License-Identifier: Apache-2.0
// Weights of head_matmul.cu on their way into shared memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "cuda/common/mla/head_matmul_chunk.cuh"
#include "cuda/common/rows/number.cuh"

namespace quire::cuda {

// How a chunk of weights comes into shared memory: bf16 copied there, e4m3 through registers (fetched
// before the products of the chunk before, put down behind them), anything else element by element.
enum class WeightPath : std::uint8_t { copied, fetched, plain };

__device__ inline WeightPath weight_path(const HeadWeights& weights) {
  const std::int64_t stride = is_turned(weights) ? weights.output_stride : weights.column_stride;
  const std::int64_t others = is_turned(weights) ? weights.column_stride : weights.output_stride;
  const auto bits = reinterpret_cast<std::uintptr_t>(weights.data) |
                    static_cast<std::uintptr_t>(others | weights.head_stride);
  if (stride != 1 || bits % 8 != 0) return WeightPath::plain;
  if (weights.dtype == DType::fp8_e4m3) return WeightPath::fetched;
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(weights.data) % 16 == 0;
  return weights.dtype == DType::bf16 && is_aligned ? WeightPath::copied : WeightPath::plain;
}

inline constexpr int kWeightRuns = kMatmulTile * kMatmulChunk / 8 / kMatmulThreads;

struct FetchedWeights {
  uint2 runs[kWeightRuns];  // eight e4m3 each
};

// Where a thread's run of eight weights along the contiguous side stands.
struct WeightRun {
  int row;
  int first;
  std::int64_t at;  // element of the weights
  bool is_there;
};

__device__ inline WeightRun weight_run(const HeadMatmulParams& params, const MatmulPlace& place,
                                       int column, int number) {
  const HeadWeights& weights = params.weights;
  const bool turned = is_turned(weights);
  const int run = static_cast<int>(threadIdx.x) + number * kMatmulThreads;
  constexpr int kTurnedRuns = kMatmulTile / 8;
  constexpr int kStraightRuns = kMatmulChunk / 8;
  const int row = turned ? run / kTurnedRuns : run / kStraightRuns;
  const int first = (turned ? run % kTurnedRuns : run % kStraightRuns) * 8;
  const int output = place.first_output + (turned ? first : row);
  const int at_column = column + (turned ? row : first);
  return {.row = row,
          .first = first,
          .at = place.head * weights.head_stride + output * weights.output_stride +
                at_column * weights.column_stride,
          .is_there = output < params.outputs};
}

__device__ inline std::uint16_t* run_target(MatmulW& chunk, bool turned, const WeightRun& run) {
  return turned ? &chunk.turned[run.row][run.first] : &chunk.straight[run.row][run.first];
}

// Asynchronous copies, or loads that nobody waits for yet.
__device__ inline void fetch_w(const HeadMatmulParams& params, const MatmulPlace& place, int column,
                               WeightPath path, MatmulW& chunk, FetchedWeights& fetched) {
  if (path == WeightPath::plain) return;
  const HeadWeights& weights = params.weights;
#pragma unroll
  for (int i = 0; i < kWeightRuns; ++i) {
    const WeightRun run = weight_run(params, place, column, i);
    if (path == WeightPath::copied) {
      copy_sixteen(run_target(chunk, is_turned(weights), run),
                   weights.data + (run.is_there ? 2 * run.at : 0), run.is_there);
    } else {
      fetched.runs[i] =
          run.is_there ? *reinterpret_cast<const uint2*>(weights.data + run.at) : uint2{};
    }
  }
}

__device__ inline std::uint32_t f16_of_e4m3(std::uint32_t two) {
  const __half2_raw pair =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two), __NV_E4M3);
  return pair.x | std::uint32_t{pair.y} << 16;
}

__device__ inline uint4 f16_of_e4m3(const uint2& eight) {
  return {f16_of_e4m3(eight.x & 0xffff), f16_of_e4m3(eight.x >> 16), f16_of_e4m3(eight.y & 0xffff),
          f16_of_e4m3(eight.y >> 16)};
}

// Any dtype and strides. A function of its own, element by element: inlined, what no usual call
// needs was nine tenths of the kernel's 450 KB of code, and the rest waited for instructions.
__device__ __noinline__ void put_plain_w(const HeadMatmulParams& params, const MatmulPlace& place,
                                         int column, MatmulW& chunk) {
  const HeadWeights& weights = params.weights;
  const bool turned = is_turned(weights);
  const std::int64_t stride = turned ? weights.output_stride : weights.column_stride;
#pragma unroll 1
  for (int i = 0; i < 8 * kWeightRuns; ++i) {
    const WeightRun run = weight_run(params, place, column, i / 8);
    const std::int64_t at = run.at + i % 8 * stride;
    const float number =
        run.is_there ? static_cast<float>(load_number(weights.data, weights.dtype, at)) : 0.0F;
    run_target(chunk, turned, run)[i % 8] = is_fp8(weights.dtype)
                                                ? __half_as_ushort(__float2half_rn(number))
                                                : __bfloat16_as_ushort(__float2bfloat16_rn(number));
  }
}

__device__ inline void put_w(const HeadMatmulParams& params, const MatmulPlace& place, int column,
                             WeightPath path, MatmulW& chunk, const FetchedWeights& fetched) {
  if (path == WeightPath::copied) return;
  if (path == WeightPath::plain) return put_plain_w(params, place, column, chunk);
  const bool turned = is_turned(params.weights);
#pragma unroll
  for (int i = 0; i < kWeightRuns; ++i) {
    const WeightRun run = weight_run(params, place, column, i);
    *reinterpret_cast<uint4*>(run_target(chunk, turned, run)) = f16_of_e4m3(fetched.runs[i]);
  }
}

}  // namespace quire::cuda
