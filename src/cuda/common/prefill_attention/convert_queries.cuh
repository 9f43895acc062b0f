// SPDX-License-Identifier: Apache-2.0
// The warpgroup's 64 rows of q in shared memory, bf16 to f16, in place.
//
// A power of two brings each row's largest number near the top of f16's range: what is lost is
// smaller than it by 2^-29 or more.
#pragma once

#include <cuda_fp8.h>

#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/common/softmax/softmax.cuh"
#include "cuda/common/thread/thread.cuh"

namespace quire::cuda {

__device__ inline float low_bf16(std::uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ inline float high_bf16(std::uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000);
}
__device__ inline float larger(float largest, std::uint32_t pair) {
  return fmaxf(largest, fmaxf(fabsf(low_bf16(pair)), fabsf(high_bf16(pair))));
}
__device__ inline std::uint32_t to_f16(std::uint32_t pair, float by) {
  return pack_pair<DType::f16>(low_bf16(pair) * by, high_bf16(pair) * by);
}

// A warp's 16 rows, two lanes on each. `rows`: the warpgroup's first. factor[i]: what the numbers
// of row lane / 4 + 8i of the warp were divided by.
template <PrefillConfig kConfig>
__device__ inline void convert_queries(std::byte* rows, float (&factor)[2]) {
  constexpr int kChunks = 4 * kConfig.query_swizzle_columns();  // of 16 bytes, for each lane
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const auto row = static_cast<int>(threadIdx.x % 128 / 32 * 16) + lane % 16;
  const auto chunk = [&](int k) -> uint4& {
    const int at = lane / 16 * kChunks + k;
    return *reinterpret_cast<uint4*>(rows +
                                     at / 8 * PrefillShared<kConfig>::kQuerySwizzleColumnBytes +
                                     row * kRowBytes + ((at % 8) ^ (row % 8)) * 16);
  };
  float largest = 0.0F;
#pragma unroll
  for (int k = 0; k < kChunks; ++k) {
    const uint4 words = chunk(k);
    largest = larger(larger(larger(larger(largest, words.x), words.y), words.z), words.w);
  }
  largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 16));
  const auto exponent = static_cast<int>(__float_as_uint(largest) >> 23);
  const int shift = exponent == 255 ? 127 : min(254 + 14 - exponent, 240);
  const float by = __uint_as_float(static_cast<std::uint32_t>(shift) << 23);
#pragma unroll
  for (int k = 0; k < kChunks; ++k) {
    uint4& at = chunk(k);
    const uint4 words = at;
    at = make_uint4(to_f16(words.x, by), to_f16(words.y, by), to_f16(words.z, by),
                    to_f16(words.w, by));
  }
  const float divided = __uint_as_float(static_cast<std::uint32_t>(254 - shift) << 23);
  factor[0] = __shfl_sync(0xffffffff, divided, lane / 4);
  factor[1] = __shfl_sync(0xffffffff, divided, lane / 4 + 8);
}

// The warpgroup's 64 rows of q in shared memory, rounded to e4m3, in place: 64 columns of 16 bits
// in each of two swizzle columns become 128 columns in the first, those of a third half of the second.
//
// A power of two brings each row's largest number into [128, 256): reference/flash_attention.cpp
// rounds alike.

template <DType kDType> __device__ inline float2 wide_pair(std::uint32_t pair) {
  if constexpr (kDType == DType::bf16) return make_float2(low_bf16(pair), high_bf16(pair));
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}

// Four numbers into four bytes, the first lowest.
__device__ inline std::uint32_t pack_e4m3(float a, float b, float c, float d) {
  std::uint16_t low;
  std::uint16_t high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
  return static_cast<std::uint32_t>(low) | static_cast<std::uint32_t>(high) << 16;
}

// The highest and the lowest of the even and of the odd numbers of bf16; NaN if there is one. The
// maximum of three takes no magnitudes, so both ends are cheaper than one of those.
class PairRange {
 public:
  __device__ void take(const uint4& words) {
    take(words.x, words.y);
    take(words.z, words.w);
  }
  // The largest magnitudes.
  __device__ std::uint32_t largest() const {
    const __nv_bfloat162 largest = __hmax2_nan(highest_, __hneg2(lowest_));
    return *reinterpret_cast<const std::uint32_t*>(&largest);
  }

 private:
  __device__ void take(std::uint32_t first, std::uint32_t second) {
    const auto& a = *reinterpret_cast<const __nv_bfloat162*>(&first);
    const auto& b = *reinterpret_cast<const __nv_bfloat162*>(&second);
    highest_ = __hmax2_nan(__hmax2_nan(highest_, a), b);
    lowest_ = __hmin2_nan(__hmin2_nan(lowest_, a), b);
  }

  __nv_bfloat162 highest_ = __floats2bfloat162_rn(0.0F, 0.0F);
  __nv_bfloat162 lowest_ = __floats2bfloat162_rn(0.0F, 0.0F);
};

// The power of two that brings a row's largest number into [128, 256), and what undoes it; rows that
// are not finite become NaN.
struct RowFactor {
  float by;
  float divided;
};

// The row's other lane stands 16 away.
template <DType kDType> __device__ inline RowFactor row_factor(std::uint32_t largest) {
  // As integers: bits of floats without a sign compare alike.
  largest = __vmaxu2(largest & 0x7fff7fff, __shfl_xor_sync(0xffffffff, largest & 0x7fff7fff, 16));
  const float2 two = wide_pair<kDType>(largest);
  const auto exponent = static_cast<int>(max(__float_as_uint(two.x), __float_as_uint(two.y)) >> 23);
  const int shift = min(254 + 7 - exponent, 240);
  return {.by = exponent == 255 ? NAN : __uint_as_float(static_cast<std::uint32_t>(shift) << 23),
          .divided = __uint_as_float(static_cast<std::uint32_t>(254 - shift) << 23)};
}

// A warp's 16 rows, two lanes on each: the first has the first swizzle column and half of the
// third, if there is one.
template <PrefillConfig kConfig> class QueryRounding {
 public:
  static_assert(kConfig.head_dim == 128 || kConfig.head_dim == 192);
  static_assert(kConfig.dtype == DType::bf16);
  static constexpr int kChunks = kConfig.head_dim / 16;  // of 16 bytes, for each lane

  // `rows`: the warpgroup's first. Places are found anew for every tile: kept, they would be spilled.
  __device__ explicit QueryRounding(std::byte* rows)
      : rows_(rows), thread_(opaque(static_cast<int>(threadIdx.x % 128))) {}

  // factor[i]: what the numbers of row lane / 4 + 8i of the warp were divided by.
  __device__ void run(float (&factor)[2]) const {
    uint4 words[kChunks];
    PairRange range;
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      words[k] = *chunk(wide_place(k));
      range.take(words[k]);
    }
    const RowFactor row = row_factor<kConfig.dtype>(range.largest());
    __syncwarp();  // all of a row is read
    const std::uint32_t by = __byte_perm(__float_as_uint(row.by), 0, 0x3232);
#pragma unroll
    for (int k = 0; k < kChunks; k += 2) {
      *chunk(fp8_place(k)) =
          make_uint4(round_quad(words[k].x, words[k].y, by), round_quad(words[k].z, words[k].w, by),
                     round_quad(words[k + 1].x, words[k + 1].y, by),
                     round_quad(words[k + 1].z, words[k + 1].w, by));
    }
    factor[0] = __shfl_sync(0xffffffff, row.divided, lane() / 4);
    factor[1] = __shfl_sync(0xffffffff, row.divided, lane() / 4 + 8);
  }

 private:
  static constexpr int kSwizzleColumnBytes = PrefillShared<kConfig>::kQuerySwizzleColumnBytes;

  __device__ int lane() const {
    return thread_ % 32;
  }
  __device__ int half() const {
    return lane() / 16;
  }
  // Where the lane's row begins: chunk c of it stands at this ^ 16c.
  __device__ int row_place() const {
    const int row = thread_ / 32 * 16 + lane() % 16;
    return row * kRowBytes + row % 8 * 16;
  }
  // Where chunk k of the lane stands before it is rounded: the first eight are a swizzle column's, the others half
  // of the third.
  __device__ int wide_place(int k) const {
    if (k < 8) return (row_place() + half() * kSwizzleColumnBytes) ^ k * 16;
    return ((row_place() ^ half() * 64) + 2 * kSwizzleColumnBytes) ^ (k - 8) * 16;
  }
  // And chunks k and k + 1 when they are.
  __device__ int fp8_place(int k) const {
    if (k < 8) return row_place() ^ half() * 64 ^ k / 2 * 16;
    return ((row_place() ^ half() * 32) + kSwizzleColumnBytes) ^ (k - 8) / 2 * 16;
  }
  __device__ uint4* chunk(int place) const {
    return reinterpret_cast<uint4*>(rows_ + place);
  }
  // Times a power of two, exactly: what leaves bf16's range at its lower end rounds to zero anyway.
  __device__ static std::uint32_t round_quad(std::uint32_t low, std::uint32_t high,
                                             std::uint32_t by) {
    const float2 a = wide_pair<DType::bf16>(times(low, by));
    const float2 b = wide_pair<DType::bf16>(times(high, by));
    return pack_e4m3(a.x, a.y, b.x, b.y);
  }
  __device__ static std::uint32_t times(std::uint32_t pair, std::uint32_t by) {
    const __nv_bfloat162 product = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&pair),
                                           *reinterpret_cast<const __nv_bfloat162*>(&by));
    return *reinterpret_cast<const std::uint32_t*>(&product);
  }

  std::byte* rows_;
  const int thread_;  // of the warpgroup
};

// The warpgroup's 64 rows of q in shared memory, bf16 to the sum of two numbers of e4m3, in place:
// 64 columns of 16 bits in each of two swizzle columns become 128 columns of the first number in the first
// swizzle column and of the second in the second.
//
// The first keeps 4 of bf16's 8 bits, the second the other 4. A power of two brings each row's
// largest number into [128, 256): what is lost is smaller than it by 2^-18 or more.

// Four numbers less what four bytes hold of them.
__device__ inline float4 left_of(float4 numbers, std::uint32_t bytes) {
  const auto pair = [](std::uint32_t two) {
    return __half22float2(
        __half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two), __NV_E4M3)));
  };
  const float2 low = pair(bytes & 0xffff);
  const float2 high = pair(bytes >> 16);
  return make_float4(numbers.x - low.x, numbers.y - low.y, numbers.z - high.x, numbers.w - high.y);
}

// Two words of four bf16 into the bytes of both numbers.
__device__ inline void split_quad(std::uint32_t low, std::uint32_t high, float by,
                                  std::uint32_t& first, std::uint32_t& second) {
  const float4 numbers = make_float4(low_bf16(low) * by, high_bf16(low) * by, low_bf16(high) * by,
                                     high_bf16(high) * by);
  first = pack_e4m3(numbers.x, numbers.y, numbers.z, numbers.w);
  const float4 left = left_of(numbers, first);
  second = pack_e4m3(left.x, left.y, left.z, left.w);
}

// As QueryRounding.
template <PrefillConfig kConfig>
__device__ inline void split_queries(std::byte* rows, float (&factor)[2]) {
  static_assert(kConfig.head_dim == 128 && kConfig.dtype == DType::bf16);
  constexpr int kChunks = 8;  // of 16 bytes, for each lane
  constexpr int kSwizzleColumnBytes = PrefillShared<kConfig>::kQuerySwizzleColumnBytes;
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const auto row = static_cast<int>(threadIdx.x % 128 / 32 * 16) + lane % 16;
  const int half = lane / 16;
  std::byte* at = rows + row * kRowBytes;
  uint4 words[kChunks];
  PairRange range;
#pragma unroll
  for (int k = 0; k < kChunks; ++k) {
    words[k] =
        *reinterpret_cast<const uint4*>(at + half * kSwizzleColumnBytes + (k ^ (row % 8)) * 16);
    range.take(words[k]);
  }
  const auto [by, divided] = row_factor<DType::bf16>(range.largest());
  __syncwarp();  // all of a row is read
#pragma unroll
  for (int k = 0; k < kChunks; k += 2) {
    const uint4& a = words[k];
    const uint4& b = words[k + 1];
    uint4 first;
    uint4 second;
    split_quad(a.x, a.y, by, first.x, second.x);
    split_quad(a.z, a.w, by, first.y, second.y);
    split_quad(b.x, b.y, by, first.z, second.z);
    split_quad(b.z, b.w, by, first.w, second.w);
    const int chunk = ((4 * half + k / 2) ^ (row % 8)) * 16;
    *reinterpret_cast<uint4*>(at + chunk) = first;
    *reinterpret_cast<uint4*>(at + kSwizzleColumnBytes + chunk) = second;
  }
  factor[0] = __shfl_sync(0xffffffff, divided, lane / 4);
  factor[1] = __shfl_sync(0xffffffff, divided, lane / 4 + 8);
}

}  // namespace quire::cuda
