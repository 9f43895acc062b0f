// SPDX-License-Identifier: Apache-2.0
// Tiles of head_matmul.cu: how x comes into shared memory, and the products.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cute/arch/copy_sm75.hpp>
#include <cute/arch/copy_sm80.hpp>
#include <cute/arch/mma_sm80.hpp>

#include <cstdint>

#include "cuda/common/mla/fp8_group.cuh"
#include "cuda/common/mla/head_product.h"
#include "cuda/common/rows/number.cuh"
#include "cuda/common/rows/quotient.cuh"
#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda {

// What a block of head_matmul.cu holds in shared memory.

inline constexpr int kMatmulTile = 64;    // rows, and outputs
inline constexpr int kMatmulChunk = 128;  // columns
inline constexpr int kMatmulThreads = 128;
inline constexpr int kMatmulPad = 8;  // rows then begin in different banks

// 16-bit numbers: bf16; with e4m3 weights f16, in which numbers of e4m3 are exact and one conversion
// for two.
struct MatmulX {
  std::uint16_t rows[kMatmulTile][kMatmulChunk + kMatmulPad];
  float scales[kMatmulTile];
};

// [output][column], or [column][output] where outputs are what is contiguous in memory.
union MatmulW {
  std::uint16_t straight[kMatmulTile][kMatmulChunk + kMatmulPad];
  std::uint16_t transposed[kMatmulChunk][kMatmulTile + kMatmulPad];
};

struct MatmulShared {
  MatmulW w[2];
  MatmulX x[2];  // of a single chunk of columns: the first only

  static constexpr std::size_t bytes(int chunks) {
    return 2 * sizeof(MatmulW) + (chunks > 1 ? 2 : 1) * sizeof(MatmulX);
  }
};

struct MatmulPlace {
  int head;
  std::int64_t first_row;
  std::int64_t num_rows;
  int first_output;

  // Of the tile's rows; those past them are zeros.
  __device__ int live_rows() const {
    return static_cast<int>(min(num_rows - first_row, std::int64_t{kMatmulTile}));
  }
};

using MatmulSums = float[kMatmulTile / 8][4];

__device__ inline bool is_transposed(const HeadWeights& weights) {
  return weights.output_stride == 1 && weights.column_stride != 1;
}

__device__ inline void copy_sixteen(void* target, const std::byte* source, bool is_there) {
  auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(target));
  asm volatile("" : "+r"(address));  // see copy_query (sm90/mla_decode/latent/shared.cuh)
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(source),
               "r"(is_there ? 16 : 0)
               : "memory");
}

// Weights of head_matmul.cu on their way into shared memory.

// How a chunk of weights comes into shared memory: bf16 copied there, e4m3 through registers (fetched
// before the products of the chunk before, put down behind them), anything else element by element.
enum class WeightPath : std::uint8_t { copied, fetched, plain };

__device__ inline WeightPath weight_path(const HeadWeights& weights) {
  const std::int64_t stride =
      is_transposed(weights) ? weights.output_stride : weights.column_stride;
  const std::int64_t others =
      is_transposed(weights) ? weights.column_stride : weights.output_stride;
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

__device__ inline WeightRun weight_run(const HeadProductParams& params, const MatmulPlace& place,
                                       int column, int number) {
  const HeadWeights& weights = params.weights;
  const bool transposed = is_transposed(weights);
  const int run = static_cast<int>(threadIdx.x) + number * kMatmulThreads;
  constexpr int kTransposedRuns = kMatmulTile / 8;
  constexpr int kStraightRuns = kMatmulChunk / 8;
  const int row = transposed ? run / kTransposedRuns : run / kStraightRuns;
  const int first = (transposed ? run % kTransposedRuns : run % kStraightRuns) * 8;
  const int output = place.first_output + (transposed ? first : row);
  const int at_column = column + (transposed ? row : first);
  return {.row = row,
          .first = first,
          .at = place.head * weights.head_stride + output * weights.output_stride +
                at_column * weights.column_stride,
          .is_there = output < params.outputs};
}

__device__ inline std::uint16_t* run_target(MatmulW& chunk, bool transposed, const WeightRun& run) {
  return transposed ? &chunk.transposed[run.row][run.first] : &chunk.straight[run.row][run.first];
}

// Asynchronous copies, or loads that nobody waits for yet.
__device__ inline void fetch_w(const HeadProductParams& params, const MatmulPlace& place,
                               int column, WeightPath path, MatmulW& chunk,
                               FetchedWeights& fetched) {
  if (path == WeightPath::plain) return;
  const HeadWeights& weights = params.weights;
#pragma unroll
  for (int i = 0; i < kWeightRuns; ++i) {
    const WeightRun run = weight_run(params, place, column, i);
    if (path == WeightPath::copied) {
      copy_sixteen(run_target(chunk, is_transposed(weights), run),
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

__device__ inline uint4 f16_of_e4m3(const uint2& vec8) {
  return {f16_of_e4m3(vec8.x & 0xffff), f16_of_e4m3(vec8.x >> 16), f16_of_e4m3(vec8.y & 0xffff),
          f16_of_e4m3(vec8.y >> 16)};
}

// Any dtype and strides. A function of its own, element by element: inlined, what no usual call
// needs was nine tenths of the kernel's 450 KB of code, and the rest waited for instructions.
__device__ __noinline__ void put_plain_w(const HeadProductParams& params, const MatmulPlace& place,
                                         int column, MatmulW& chunk) {
  const HeadWeights& weights = params.weights;
  const bool transposed = is_transposed(weights);
  const std::int64_t stride = transposed ? weights.output_stride : weights.column_stride;
#pragma unroll 1
  for (int i = 0; i < 8 * kWeightRuns; ++i) {
    const WeightRun run = weight_run(params, place, column, i / 8);
    const std::int64_t at = run.at + i % 8 * stride;
    const float number =
        run.is_there ? static_cast<float>(load_number(weights.data, weights.dtype, at)) : 0.0F;
    run_target(chunk, transposed, run)[i % 8] =
        is_fp8(weights.dtype) ? __half_as_ushort(__float2half_rn(number))
                              : __bfloat16_as_ushort(__float2bfloat16_rn(number));
  }
}

__device__ inline void put_w(const HeadProductParams& params, const MatmulPlace& place, int column,
                             WeightPath path, MatmulW& chunk, const FetchedWeights& fetched) {
  if (path == WeightPath::copied) return;
  if (path == WeightPath::plain) return put_plain_w(params, place, column, chunk);
  const bool transposed = is_transposed(params.weights);
#pragma unroll
  for (int i = 0; i < kWeightRuns; ++i) {
    const WeightRun run = weight_run(params, place, column, i);
    *reinterpret_cast<uint4*>(run_target(chunk, transposed, run)) = f16_of_e4m3(fetched.runs[i]);
  }
}

__device__ inline void fetch_x(const HeadProductParams& params, const MatmulPlace& place,
                               int column, MatmulX& x) {
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
    auto& vec8 = *reinterpret_cast<uint4*>(&x.rows[row][column]);
    float values[8];
    Vec8<DType::bf16>::decode(vec8, values);
    const GroupScale group = group_scale<kLanes>(DType::fp8_e4m3, values);
    if (group.vanishes) {
#pragma unroll
      for (float& value : values) value = isnan(value) ? value : 0.0F;
    } else {
      Quotient(group.scale, group.amax).divide(values);
    }
    vec8 = round_to_e4m3(values);
    if (column == 0) x.scales[row] = group.vanishes ? 1.0F : group.scale;
  }
}

__device__ inline void load_b(const MatmulW& w, bool transposed, int output, int step,
                              std::uint32_t (&b)[4]) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  // Matrices: outputs 0–7 and columns 0–7, columns 8–15, then outputs 8–15 likewise.
  const int n = output + lane / 16 * 8;
  const int k = 16 * step + lane / 8 % 2 * 8;
  if (transposed) {
    cute::SM75_U16x8_LDSM_T::copy(
        *reinterpret_cast<const cute::uint128_t*>(&w.transposed[k + lane % 8][n]), b[0], b[1], b[2],
        b[3]);
  } else {
    cute::SM75_U32x4_LDSM_N::copy(
        *reinterpret_cast<const cute::uint128_t*>(&w.straight[n + lane % 8][k]), b[0], b[1], b[2],
        b[3]);
  }
}

// The products of a chunk, for themselves.
template <typename Mma>
__device__ inline void multiply_chunk(const MatmulX& x, const MatmulW& w, bool transposed,
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
      load_b(w, transposed, 8 * j, step, b);
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        float(&s)[4] = sums[j + part];
        Mma::fma(s[0], s[1], s[2], s[3], a[0], a[1], a[2], a[3], b[2 * part], b[2 * part + 1], s[0],
                 s[1], s[2], s[3]);
      }
    }
  }
}

__device__ inline void add_chunk(const HeadProductParams& params, const MatmulPlace& place,
                                 int column, const MatmulX& x, const MatmulW& w, MatmulSums& sums) {
  const HeadWeights& weights = params.weights;
  const bool transposed = is_transposed(weights);
  if (static_cast<int>(threadIdx.x) / 32 * 16 >= place.live_rows()) return;
  if (!is_fp8(weights.dtype)) {
    return multiply_chunk<cute::SM80_16x8x16_F32BF16BF16F32_TN>(x, w, transposed, sums);
  }
  MatmulSums parts = {};
  multiply_chunk<cute::SM80_16x8x16_F32F16F16F32_TN>(x, w, transposed, parts);
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
