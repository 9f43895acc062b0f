// SPDX-License-Identifier: Apache-2.0
// Dot products of 64 keys with the heads of a block of tokens, in fp8. The tensor cores keep 13 bits
// below the greatest product or sum of an instruction and cut off the rest; over 128 columns of mixed
// signs that is 1e-5 of Σ |q · k| of one head (measured), less in the sum over heads.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstddef>

#include "cuda/common/mma/warp_mma.cuh"
#include "cuda/common/mma/wgmma.cuh"
#include "cuda/sm90/mla_indexer/config.h"
#include "cuda/sm90/mla_indexer/select.cuh"

namespace quire::cuda::sm90::mla_indexer {

// A row is one swizzled line of `dims` bytes; atoms are 8 rows.
template <int kDims> __device__ inline std::uint64_t row_tile_descriptor(const void* tile) {
  static_assert(kDims == 64 || kDims == 128);
  constexpr std::uint64_t kSwizzle = kDims == 128 ? 1 : 2;
  const std::uint64_t address = __cvta_generic_to_shared(tile);
  return (address >> 4) | (std::uint64_t{1} << 16) | (std::uint64_t{8 * kDims >> 4} << 32) |
         (kSwizzle << 62);
}

// `step` instructions further along a row: an address, which the lower half of the word has room for.
__device__ inline std::uint64_t step_along(std::uint64_t descriptor, int step) {
  const auto low = static_cast<std::uint32_t>(descriptor) + step * (kStepBytes >> 4);
  return descriptor >> 32 << 32 | low;
}

template <IndexConfig kConfig>
__device__ inline void start_products(const void* tile, const std::byte* queries,
                                      float (&sums)[kConfig.columns() / 2]) {
  const std::uint64_t keys = row_tile_descriptor<kConfig.dims>(tile);
  const std::uint64_t columns = row_tile_descriptor<kConfig.dims>(queries);
  pin(sums);
  cute::warpgroup_arrive();
#pragma unroll
  for (int step = 0; step < kConfig.dims / kStepBytes; ++step) {
    detail::issue<Wgmma<DType::fp8_e4m3, kConfig.columns()>>(
        step_along(keys, step), step_along(columns, step), sums,
        step == 0 ? gmma::ScaleOut::Zero : gmma::ScaleOut::One,
        std::make_index_sequence<kConfig.columns() / 2>{});
  }
  cute::warpgroup_commit_batch();
}

template <int kSums> __device__ inline void wait_for_products(float (&sums)[kSums]) {
  cute::warpgroup_wait<0>();
  pin(sums);
}

// Dot products as products.cuh has them, of numbers converted to f16 on the way: every product is exact
// and the sums are fp32's. For so few heads that what fp8 instructions cut off would show; then memory
// or the epilogue is the limit, and half the rate costs nothing.
//
// Keys go through registers. A thread gets four neighbouring bytes of a row where the instruction wants
// columns 2c, 2c + 1, 2c + 8 and 2c + 9 of sixteen, so queries are stored in that order too.

// Two e4m3 numbers, which f16 holds exactly.
__device__ inline std::uint32_t to_half2(std::uint32_t two) {
  std::uint32_t halves = 0;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(two)));
  return halves;
}

// Rows [columns] of kDims bytes, one after another, to swizzled tiles of 64 columns each. By a warp; a
// fence for the tensor cores is left to the caller.
template <IndexConfig kConfig>
__device__ inline void convert_queries(const std::byte* source, std::byte* tiles) {
  constexpr int kWordsOfRow = kConfig.dims / 4;
  const auto lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll 4
  for (int i = lane; i < kConfig.columns() * kWordsOfRow; i += 32) {
    const int row = i / kWordsOfRow;
    const int word = i % kWordsOfRow;
    const std::uint32_t four = reinterpret_cast<const std::uint32_t*>(source)[i];
    const int chunk = word / 4 * 2;  // of 16 bytes: eight columns
    std::byte* swizzle_column = tiles + chunk / 8 * kConfig.columns() * kRowBytes + row * kRowBytes;
    const auto place = [&](int at) {
      return swizzle_column + (at % 8 ^ row % 8) * 16 + word % 4 * 4;
    };
    *reinterpret_cast<std::uint32_t*>(place(chunk)) = to_half2(four);
    *reinterpret_cast<std::uint32_t*>(place(chunk + 1)) = to_half2(four >> 16);
  }
}

// 32 bytes of the warp's sixteen rows.
template <int kDims>
__device__ inline void load_rows(const std::byte* tile, int step, std::uint32_t (&words)[4]) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const int row = static_cast<int>(threadIdx.x / 32 % 4) * 16 + lane % 16;
  const int chunk = 2 * step + lane / 16;
  const int swizzled = kDims == 128 ? chunk ^ row % 8 : chunk ^ row / 2 % 4;
  const auto address =
      static_cast<unsigned>(__cvta_generic_to_shared(tile + row * kDims + swizzled * 16));
  load_squares(address, words);
}

template <IndexConfig kConfig>
__device__ inline void multiply_halves(const std::byte* tile, const std::byte* queries,
                                       float (&sums)[kConfig.columns() / 2]) {
  constexpr int kSteps = kConfig.dims / 32;
  std::uint32_t keys[kSteps * 8];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    std::uint32_t words[4];
    load_rows<kConfig.dims>(tile, step, words);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t* out = keys + 8 * step + 4 * half;
      out[0] = to_half2(words[2 * half]);
      out[1] = to_half2(words[2 * half + 1]);
      out[2] = to_half2(words[2 * half] >> 16);
      out[3] = to_half2(words[2 * half + 1] >> 16);
    }
  }
  pin(sums);
  pin(keys);
  cute::warpgroup_arrive();
#pragma unroll
  for (int step = 0; step < 2 * kSteps; ++step) {
    const std::byte* swizzle_column = queries + step / 4 * kConfig.columns() * kRowBytes;
    detail::issue<RowWgmma<DType::f16, kConfig.columns()>>(
        keys + 4 * step, tile_descriptor(swizzle_column) + step % 4 * (kStepBytes >> 4), sums,
        step == 0 ? cute::SM90::GMMA::ScaleOut::Zero : cute::SM90::GMMA::ScaleOut::One,
        std::make_index_sequence<kConfig.columns() / 2>{});
  }
  cute::warpgroup_commit_batch();
  cute::warpgroup_wait<0>();  // the keys are registers
  pin(sums);
}

// Σ over heads of max(0, dot) · q_scale, from the sums of a product to one result in one lane.
//
// A thread has, of its keys r and r + 8, the columns 8j + 2c and 8j + 2c + 1 (c = lane % 4). Of two tokens,
// columns come four by four by turns, so that all of a thread's are one token's. It adds up its own heads;
// then the lanes of a key and a token exchange halves until each holds what is its own:
//   2 tokens: token c / 2, key c % 2     1 token: key c % 2, twice

// 2 max(0, x), NaN kept: two full-rate instructions with the multiplication where a maximum has half
// the rate. The weights are halved.
__device__ inline float twice_positive(float x) {
  return x + fabsf(x);
}

// Keeps `low` in lanes whose bit `step` is clear, `high` in the others, and adds the other lane's.
__device__ inline float keep_half(float low, float high, int step, bool is_high) {
  const float sent = is_high ? low : high;
  return (is_high ? high : low) + __shfl_xor_sync(kWholeWarp, sent, step);
}

template <IndexConfig kConfig> struct HeadSums {
  static constexpr int kTokens = kConfig.tokens;
  static_assert(kTokens <= 2);
  static constexpr int kColumns = kConfig.columns();

  static constexpr int kGroup = IndexConfig::kHeadGroup;
  __device__ static int column(int token, int head) {
    return (head / kGroup * kTokens + token) * kGroup + head % kGroup;
  }

  // A thread's weights stand one after another; four floats between those of two lanes, or the four
  // lanes of a key would read the same banks.
  static constexpr int kOwnWeights = kColumns / 4;
  static constexpr int kWeightStride = kOwnWeights + 4;
  static constexpr int kWeightFloats = 4 * kWeightStride;
  __device__ static int weight_place(int token, int head) {
    const int at = column(token, head);
    return at / 2 % 4 * kWeightStride + at / 8 * 2 + at % 2;
  }
  __device__ static const float* own_weights(const float* weights) {
    return weights + threadIdx.x % 4 * kWeightStride;
  }

  // The token whose result a lane gets, and its key in the warp's 16.
  __device__ static int token() { return kTokens == 2 ? static_cast<int>(threadIdx.x % 4) / 2 : 0; }
  __device__ static int key() {
    return static_cast<int>(threadIdx.x % 32) / 4 + 8 * static_cast<int>(threadIdx.x % 2);
  }
  static constexpr int kWriters = 64 * kTokens;  // of a warpgroup
  // One of the lanes that hold the same result.
  __device__ static bool is_first() { return kTokens == 2 || threadIdx.x % 4 < 2; }

  // Adds up a thread's own heads, for both its keys; weights [kOwnWeights] are the thread's.
  __device__ static void add(const float (&products)[kColumns / 2], const float* weights,
                             float (&parts)[2]) {
    parts[0] = 0.0f;
    parts[1] = 0.0f;
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          parts[i] =
              fmaf(twice_positive(products[4 * j + 2 * i + e]), weights[2 * j + e], parts[i]);
        }
      }
    }
  }

  // The result of key() and token().
  __device__ static float exchange(const float (&parts)[2]) {
    float result = keep_half(parts[0], parts[1], 1, threadIdx.x % 2 != 0);
    if constexpr (kTokens == 1) result += __shfl_xor_sync(kWholeWarp, result, 2);
    return result;
  }
};

}  // namespace quire::cuda::sm90::mla_indexer
