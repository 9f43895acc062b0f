// SPDX-License-Identifier: Apache-2.0
// Tiles of head_matmul.cu: how they come into shared memory, and their products.
#pragma once

#include <cuda_bf16.h>

#include <cute/arch/copy_sm75.hpp>
#include <cute/arch/copy_sm80.hpp>
#include <cute/arch/mma_sm80.hpp>

#include "cuda/hopper/latent/fp8_group.cuh"
#include "cuda/hopper/latent/head_matmul.h"
#include "cuda/hopper/latent_attention/convert_row.cuh"

namespace quire::cuda::hopper {

inline constexpr int kMatmulTile = 64;    // rows, and outputs
inline constexpr int kMatmulChunk = 128;  // columns
inline constexpr int kMatmulThreads = 128;
inline constexpr int kMatmulPad = 8;  // rows then begin in different banks

struct MatmulChunk {
  __nv_bfloat16 x[kMatmulTile][kMatmulChunk + kMatmulPad];
  // [output][column], or [column][output] where outputs are what is contiguous in memory.
  union {
    __nv_bfloat16 w[kMatmulTile][kMatmulChunk + kMatmulPad];
    __nv_bfloat16 w_turned[kMatmulChunk][kMatmulTile + kMatmulPad];
  };
  float x_scales[kMatmulTile];
};

struct MatmulShared {
  MatmulChunk chunks[2];
};

struct MatmulPlace {
  int head;
  std::int64_t first_row;
  std::int64_t num_rows;
  int first_output;
};

using MatmulSums = float[kMatmulTile / 8][4];

__device__ inline bool is_turned(const HeadWeights& weights) {
  return weights.output_stride == 1 && weights.column_stride != 1;
}

__device__ inline void copy_sixteen(void* target, const std::byte* source, bool is_there) {
  auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(target));
  asm volatile("" : "+r"(address));  // see copy_query (latent_attention/load_queries.cuh)
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(source),
               "r"(is_there ? 16 : 0)
               : "memory");
}

// Eight neighbouring weights from element `at` on, as bf16; without scales.
__device__ inline uint4 eight_weights(const HeadWeights& weights, std::int64_t at,
                                      std::int64_t stride) {
  const std::byte* source = weights.data + at;
  if (weights.dtype == DType::fp8_e4m3 && stride == 1 &&
      reinterpret_cast<std::uintptr_t>(source) % 8 == 0) {
    const uint2 few = *reinterpret_cast<const uint2*>(source);
    return convert_eight(few.x, few.y, 1.0F);
  }
  alignas(16) __nv_bfloat16 eight[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    eight[i] = __float2bfloat16_rn(
        static_cast<float>(load_number(weights.data, weights.dtype, at + i * stride)));
  }
  return *reinterpret_cast<const uint4*>(eight);
}

// By all threads, a run of eight along the contiguous side at a time.
__device__ inline void load_w(const HeadMatmulParams& params, const MatmulPlace& place, int column,
                              MatmulChunk& chunk) {
  constexpr int kRuns = kMatmulTile * kMatmulChunk / 8;
  const HeadWeights& weights = params.weights;
  const bool turned = is_turned(weights);
  const int row_runs = (turned ? kMatmulTile : kMatmulChunk) / 8;
  const std::int64_t stride = turned ? weights.output_stride : weights.column_stride;
#pragma unroll 4
  for (int run = static_cast<int>(threadIdx.x); run < kRuns; run += kMatmulThreads) {
    const int row = run / row_runs;
    const int first = run % row_runs * 8;
    const int output = place.first_output + (turned ? first : row);
    const int at_column = column + (turned ? row : first);
    const std::int64_t at = place.head * weights.head_stride + output * weights.output_stride +
                            at_column * weights.column_stride;
    void* target = turned ? &chunk.w_turned[row][first] : &chunk.w[row][first];
    const std::byte* source = weights.data + at * 2;
    const bool is_there = output < params.outputs;
    if (weights.dtype == DType::bf16 && stride == 1 &&
        reinterpret_cast<std::uintptr_t>(source) % 16 == 0) {
      copy_sixteen(target, is_there ? source : weights.data, is_there);
    } else {
      *static_cast<uint4*>(target) = is_there ? eight_weights(weights, at, stride) : uint4{};
    }
  }
}

__device__ inline void load_chunk(const HeadMatmulParams& params, const MatmulPlace& place,
                                  int column, MatmulChunk& chunk) {
  constexpr int kRowRuns = kMatmulChunk / 8;
#pragma unroll 4
  for (int run = static_cast<int>(threadIdx.x); run < kMatmulTile * kRowRuns;
       run += kMatmulThreads) {
    const int row = run / kRowRuns;
    const bool is_there = place.first_row + row < place.num_rows;
    const std::int64_t from = is_there ? place.first_row + row : 0;
    copy_sixteen(&chunk.x[row][run % kRowRuns * 8],
                 params.x.data + from * params.x.token_bytes + place.head * params.x.head_bytes +
                     (column + run % kRowRuns * 8) * 2,
                 is_there);
  }
  load_w(params, place, column, chunk);
  cute::cp_async_fence();
}

// Rows of x become e4m3 numbers and one scale. A warp has 16 rows, and a thread waits for copies of
// others.
__device__ inline void round_x(MatmulChunk& chunk) {
  __syncthreads();
  const auto lane = static_cast<int>(threadIdx.x % 32);
  for (int row = static_cast<int>(threadIdx.x / 32); row < kMatmulTile;
       row += kMatmulThreads / 32) {
    float values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = __bfloat162float(chunk.x[row][lane + 32 * i]);
    const float scale = quantized_scale(DType::fp8_e4m3, values);
#pragma unroll
    for (int i = 0; i < 4; ++i) chunk.x[row][lane + 32 * i] = __float2bfloat16_rn(values[i]);
    if (lane == 0) chunk.x_scales[row] = scale;
  }
}

__device__ inline void load_b(const MatmulChunk& chunk, bool turned, int output, int step,
                              std::uint32_t (&b)[4]) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  // Matrices: outputs 0–7 and columns 0–7, columns 8–15, then outputs 8–15 likewise.
  const int n = output + lane / 16 * 8;
  const int k = 16 * step + lane / 8 % 2 * 8;
  if (turned) {
    cute::SM75_U16x8_LDSM_T::copy(
        *reinterpret_cast<const cute::uint128_t*>(&chunk.w_turned[k + lane % 8][n]), b[0], b[1],
        b[2], b[3]);
  } else {
    cute::SM75_U32x4_LDSM_N::copy(
        *reinterpret_cast<const cute::uint128_t*>(&chunk.w[n + lane % 8][k]), b[0], b[1], b[2],
        b[3]);
  }
}

// The products of a chunk, for themselves.
__device__ inline void multiply_chunk(const MatmulChunk& chunk, bool turned, MatmulSums& sums) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const auto warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll 2
  for (int step = 0; step < kMatmulChunk / 16; ++step) {
    std::uint32_t a[4];
    cute::SM75_U32x4_LDSM_N::copy(*reinterpret_cast<const cute::uint128_t*>(
                                      &chunk.x[16 * warp + lane % 16][16 * step + lane / 16 * 8]),
                                  a[0], a[1], a[2], a[3]);
#pragma unroll
    for (int j = 0; j < kMatmulTile / 8; j += 2) {
      std::uint32_t b[4];
      load_b(chunk, turned, 8 * j, step, b);
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        float(&s)[4] = sums[j + part];
        cute::SM80_16x8x16_F32BF16BF16F32_TN::fma(s[0], s[1], s[2], s[3], a[0], a[1], a[2], a[3],
                                                  b[2 * part], b[2 * part + 1], s[0], s[1], s[2],
                                                  s[3]);
      }
    }
  }
}

__device__ inline void add_chunk(const HeadMatmulParams& params, const MatmulPlace& place,
                                 int column, const MatmulChunk& chunk, MatmulSums& sums) {
  const HeadWeights& weights = params.weights;
  const bool turned = is_turned(weights);
  if (!is_fp8(weights.dtype)) return multiply_chunk(chunk, turned, sums);
  MatmulSums parts = {};
  multiply_chunk(chunk, turned, parts);
  const int row = static_cast<int>(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4);
  const std::int64_t first =
      place.head * weights.scale_head_stride + column / kFp8Group * weights.scale_column_stride;
#pragma unroll
  for (int j = 0; j < kMatmulTile / 8; ++j) {
    const std::int64_t output =
        weights.scale_first_row + place.head * weights.scale_head_rows + place.first_output + 8 * j;
    const float scale =
        weights.scales == nullptr
            ? 1.0F
            : weights.scales[first + output / kFp8Group * weights.scale_output_stride];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      sums[j][e] = fmaf(parts[j][e], scale * chunk.x_scales[row + e / 2 * 8], sums[j][e]);
    }
  }
}

}  // namespace quire::cuda::hopper
