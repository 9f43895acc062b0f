// SPDX-License-Identifier: Apache-2.0
// An item's queries into shared memory. For e4m3 rows they become f16, each row times a power of two
// that brings its largest number into [2^13, 2^14): bf16 has no more digits than f16, so what is lost
// stands 2^38 below it.
#pragma once

#include "cuda/common/rows/scale_vec8.cuh"
#include "cuda/common/softmax/softmax.cuh"
#include "cuda/common/thread/warp_reduce.cuh"
#include "cuda/sm90/mla_decode/latent/params.h"
#include "cuda/sm90/mla_decode/swap_ab/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

// Shared: SwapAbShared, or another that has as much of its members.
template <SwapAbConfig kConfig, typename Shared = SwapAbShared<kConfig>> class LoadTileQueries {
 public:
  // `first_row`: of an item, this block's.
  __device__ LoadTileQueries(const LatentParams& params, Shared& shared, bool has_fp8_rope,
                             int first_row = 0)
      : params_(params), shared_(shared), has_fp8_rope_(has_fp8_rope), first_row_(first_row) {}

  // By all kWarps warps of the scores; rows beyond the item's are zeros.
  template <int kWarps = SwapAbConfig::kWarps>
  __device__ void load(const LatentItem& item, int warp) const {
    constexpr int kWarpRows = kConfig.rows / kWarps;
    // For two that are scaled few rows have no registers.
    constexpr int kAtOnce = kIsScaled ? (kWarpRows < 8 ? 1 : 2) : kWarpRows;
#pragma unroll 1
    for (int first = 0; first < kWarpRows; first += kAtOnce) {
      uint4 chunks[kAtOnce][kChunks];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) fetch(item, warp + (first + i) * kWarps, chunks[i]);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) place(warp + (first + i) * kWarps, chunks[i]);
    }
    cutlass::arch::fence_view_async_shared();
  }

 private:
  static constexpr bool kIsScaled = kConfig.is_fp8();
  static constexpr int kRowChunks = (SwapAbConfig::kBlocks + 1) * 8;  // of 16 bytes, 8 columns
  static constexpr int kChunks = (kRowChunks + 31) / 32;              // of a lane

  __device__ static int lane() {
    return static_cast<int>(threadIdx.x % 32);
  }

  __device__ void fetch(const LatentItem& item, int own, uint4 (&chunks)[kChunks]) const {
    const int row = first_row_ + own;
    const std::int64_t token = item.first_token + row / params_.heads;
    const std::byte* source = params_.queries.data + token * params_.queries.token_stride_bytes +
                              row % params_.heads * params_.queries.head_stride_bytes;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int chunk = 32 * i + lane();
      const bool is_there = row < item.rows && chunk < kRowChunks;
      chunks[i] = is_there ? *reinterpret_cast<const uint4*>(source + chunk * 16) : uint4{};
    }
  }

  __device__ void place(int row, const uint4 (&chunks)[kChunks]) const {
    const int raised = kIsScaled ? powers_to_raise(chunks) : 0;
    const float factor = power_of_two(raised);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int chunk = 32 * i + lane();
      if (chunk < kRowChunks) store(row, chunk, chunks[i], factor);
    }
    if (kIsScaled && lane() == 0) {
      shared_.query_factors[row] = params_.to_log2 * power_of_two(-raised);
    }
  }

  // Nothing to scale where all are zeros; infinities and NaN stay what they are.
  __device__ static int powers_to_raise(const uint4 (&chunks)[kChunks]) {
    float top = 0.0F;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      top = fmaxf(top, fmaxf(fmaxf(largest(chunks[i].x), largest(chunks[i].y)),
                             fmaxf(largest(chunks[i].z), largest(chunks[i].w))));
    }
    top = warp_max(top);
    return top > 0.0F ? max(-126, min(126, 13 - exponent_of(top))) : 0;
  }

  __device__ static float low(std::uint32_t two) {
    return __uint_as_float(two << 16);
  }
  __device__ static float high(std::uint32_t two) {
    return __uint_as_float(two & 0xffff0000U);
  }
  __device__ static float largest(std::uint32_t two) {
    return fmaxf(fabsf(low(two)), fabsf(high(two)));
  }
  __device__ static int exponent_of(float positive) {
    return static_cast<int>(__float_as_uint(positive) >> 23) - 127;
  }
  __device__ static float power_of_two(int exponent) {
    return __uint_as_float(static_cast<std::uint32_t>(exponent + 127) << 23);
  }

  __device__ void store(int row, int chunk, const uint4& eight, float factor) const {
    std::byte* swizzle_column = shared_.q[chunk / 8];
    if (!kIsScaled || (chunk / 8 == SwapAbConfig::kBlocks && !has_fp8_rope_)) {
      *reinterpret_cast<uint4*>(swizzle_column + swizzle_column_offset(row, chunk % 8)) =
          kIsScaled ? scale_vec8(eight, factor) : eight;
      return;
    }
    const auto f16 = [factor](std::uint32_t two) {
      return pack_pair<DType::f16>(low(two) * factor, high(two) * factor);
    };
    // Of 16 columns, pairs 0, 2, 4, 6 stand in the first chunk and pairs 1, 3, 5, 7 in the second.
    const int pair = chunk % 8 / 2 * 2;
    const int byte = chunk % 2 * 8;
    *reinterpret_cast<uint2*>(swizzle_column + swizzle_column_offset(row, pair) + byte) = {
        f16(eight.x), f16(eight.z)};
    *reinterpret_cast<uint2*>(swizzle_column + swizzle_column_offset(row, pair + 1) + byte) = {
        f16(eight.y), f16(eight.w)};
  }

  const LatentParams& params_;
  Shared& shared_;
  const bool has_fp8_rope_;
  const int first_row_;
};

}  // namespace quire::cuda::sm90::mla_decode
