// SPDX-License-Identifier: Apache-2.0
// Dot products as products.cuh has them, of numbers converted to f16 on the way: every product is exact
// and the sums are fp32's. For so few heads that what fp8 instructions cut off would show; then memory
// or the epilogue is the limit, and half the rate costs nothing.
//
// Keys go through registers. A thread gets four neighbouring bytes of a row where the instruction wants
// columns 2c, 2c + 1, 2c + 8 and 2c + 9 of sixteen, so queries are stored in that order too.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstddef>

#include "cuda/common/mma/warp_products.cuh"
#include "cuda/common/mma/wgmma.cuh"
#include "cuda/sm90/mla_indexer/config.h"

namespace quire::cuda::sm90::mla_indexer {

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

}  // namespace quire::cuda::sm90::mla_indexer
