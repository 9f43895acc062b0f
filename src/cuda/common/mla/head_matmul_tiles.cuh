// SPDX-License-Identifier: Apache-2.0
// Tiles of head_matmul.cu: how x comes into shared memory, and the products.
#pragma once

#include <cute/arch/copy_sm75.hpp>
#include <cute/arch/copy_sm80.hpp>
#include <cute/arch/mma_sm80.hpp>

#include "cuda/common/mla/fp8_group.cuh"
#include "cuda/common/mla/head_matmul_weights.cuh"
#include "cuda/common/rows/quotient.cuh"
#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda {

__device__ inline void fetch_x(const HeadMatmulParams& params, const MatmulPlace& place, int column,
                               MatmulX& x) {
  constexpr int kRowRuns = kMatmulChunk / 8;
#pragma unroll 4
  for (int run = static_cast<int>(threadIdx.x); run < kMatmulTile * kRowRuns;
       run += kMatmulThreads) {
    const int row = run / kRowRuns;
    const bool is_there = place.first_row + row < place.num_rows;
    const std::int64_t from = is_there ? place.first_row + row : 0;
    copy_sixteen(&x.rows[row][run % kRowRuns * 8],
                 params.x.data + from * params.x.token_bytes + place.head * params.x.head_bytes +
                     (column + run % kRowRuns * 8) * 2,
                 is_there);
  }
}

// Eight numbers rounded to e4m3, as f16.
__device__ inline uint4 round_to_e4m3(const float (&values)[8]) {
  const auto pair = [&values](int i) {
    return f16_of_e4m3(
        __nv_cvt_float2_to_fp8x2(make_float2(values[i], values[i + 1]), __NV_SATFINITE, __NV_E4M3));
  };
  return {pair(0), pair(2), pair(4), pair(6)};
}

// Rows of x become e4m3 numbers and one scale: half a warp has a row. A thread waits for copies of
// others.
__device__ inline void round_x(MatmulX& x, int live_rows) {
  constexpr int kLanes = kMatmulChunk / 8;
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x) % kLanes * 8;
  // Whole warps: a row's lanes meet in a shuffle, and two rows share a warp.
  const int end = (live_rows + 1) / 2 * 2;
#pragma unroll 1
  for (int row = static_cast<int>(threadIdx.x) / kLanes; row < end;
       row += kMatmulThreads / kLanes) {
    auto& eight = *reinterpret_cast<uint4*>(&x.rows[row][column]);
    float values[8];
    Eight<DType::bf16>::decode(eight, values);
    const GroupScale group = group_scale<kLanes>(DType::fp8_e4m3, values);
    if (group.vanishes) {
#pragma unroll
      for (float& value : values) value = isnan(value) ? value : 0.0F;
    } else {
      Quotient(group.scale, group.amax).divide(values);
    }
    eight = round_to_e4m3(values);
    if (column == 0) x.scales[row] = group.vanishes ? 1.0F : group.scale;
  }
}

__device__ inline void load_b(const MatmulW& w, bool turned, int output, int step,
                              std::uint32_t (&b)[4]) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  // Matrices: outputs 0–7 and columns 0–7, columns 8–15, then outputs 8–15 likewise.
  const int n = output + lane / 16 * 8;
  const int k = 16 * step + lane / 8 % 2 * 8;
  if (turned) {
    cute::SM75_U16x8_LDSM_T::copy(
        *reinterpret_cast<const cute::uint128_t*>(&w.turned[k + lane % 8][n]), b[0], b[1], b[2],
        b[3]);
  } else {
    cute::SM75_U32x4_LDSM_N::copy(
        *reinterpret_cast<const cute::uint128_t*>(&w.straight[n + lane % 8][k]), b[0], b[1], b[2],
        b[3]);
  }
}

// The products of a chunk, for themselves.
template <typename Mma>
__device__ inline void multiply_chunk(const MatmulX& x, const MatmulW& w, bool turned,
                                      MatmulSums& sums) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const auto warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll 2
  for (int step = 0; step < kMatmulChunk / 16; ++step) {
    std::uint32_t a[4];
    cute::SM75_U32x4_LDSM_N::copy(*reinterpret_cast<const cute::uint128_t*>(
                                      &x.rows[16 * warp + lane % 16][16 * step + lane / 16 * 8]),
                                  a[0], a[1], a[2], a[3]);
#pragma unroll
    for (int j = 0; j < kMatmulTile / 8; j += 2) {
      std::uint32_t b[4];
      load_b(w, turned, 8 * j, step, b);
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        float(&s)[4] = sums[j + part];
        Mma::fma(s[0], s[1], s[2], s[3], a[0], a[1], a[2], a[3], b[2 * part], b[2 * part + 1], s[0],
                 s[1], s[2], s[3]);
      }
    }
  }
}

__device__ inline void add_chunk(const HeadMatmulParams& params, const MatmulPlace& place,
                                 int column, const MatmulX& x, const MatmulW& w, MatmulSums& sums) {
  const HeadWeights& weights = params.weights;
  const bool turned = is_turned(weights);
  if (static_cast<int>(threadIdx.x) / 32 * 16 >= place.live_rows()) return;
  if (!is_fp8(weights.dtype)) {
    return multiply_chunk<cute::SM80_16x8x16_F32BF16BF16F32_TN>(x, w, turned, sums);
  }
  MatmulSums parts = {};
  multiply_chunk<cute::SM80_16x8x16_F32F16F16F32_TN>(x, w, turned, parts);
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
      sums[j][e] = fmaf(parts[j][e], scale * x.scales[row + e / 2 * 8], sums[j][e]);
    }
  }
}

}  // namespace quire::cuda
