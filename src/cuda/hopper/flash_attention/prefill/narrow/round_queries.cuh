// SPDX-License-Identifier: Apache-2.0
// The warpgroup's 64 rows of q in shared memory, rounded to e4m3, in place: 64 columns of 16 bits
// in each of two slabs become 128 columns in the first, those of a third half of the second.
//
// A power of two brings each row's largest number into [128, 256): reference/flash_attention.cpp
// rounds alike.
#pragma once

#include <cuda_fp8.h>

#include "cuda/hopper/flash_attention/prefill/convert_queries.cuh"
#include "cuda/hopper/tile/opaque.cuh"

namespace quire::cuda::hopper {

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

template <DType kDType>
__device__ inline std::uint32_t round_quad(std::uint32_t low, std::uint32_t high, float by) {
  const float2 a = wide_pair<kDType>(low);
  const float2 b = wide_pair<kDType>(high);
  return pack_e4m3(a.x * by, a.y * by, b.x * by, b.y * by);
}

// The largest magnitudes of the even and of the odd numbers, in a word. As integers: bits of floats
// without a sign compare alike, infinity and then NaN above all others.
__device__ inline std::uint32_t largest_of(const uint4& words, std::uint32_t largest) {
  constexpr std::uint32_t kMagnitudes = 0x7fff7fff;
  largest = __vimax3_u16x2(largest, words.x & kMagnitudes, words.y & kMagnitudes);
  return __vimax3_u16x2(largest, words.z & kMagnitudes, words.w & kMagnitudes);
}

// The power of two that brings a row's largest number into [128, 256), and what undoes it; rows that
// are not finite become NaN.
struct RowFactor {
  float by;
  float divided;
};

// The row's other lane stands 16 away.
template <DType kDType> __device__ inline RowFactor row_factor(std::uint32_t largest) {
  largest = __vmaxu2(largest, __shfl_xor_sync(0xffffffff, largest, 16));
  const float2 two = wide_pair<kDType>(largest);
  const auto exponent = static_cast<int>(max(__float_as_uint(two.x), __float_as_uint(two.y)) >> 23);
  const int shift = min(254 + 7 - exponent, 240);
  return {.by = exponent == 255 ? NAN : __uint_as_float(static_cast<std::uint32_t>(shift) << 23),
          .divided = __uint_as_float(static_cast<std::uint32_t>(254 - shift) << 23)};
}

// A warp's 16 rows, two lanes on each: the first has the first slab and half of the
// third, if there is one.
template <PrefillConfig kConfig> class QueryRounding {
 public:
  static_assert(kConfig.head_dim == 128 || kConfig.head_dim == 192);
  static constexpr int kChunks = kConfig.head_dim / 16;  // of 16 bytes, for each lane

  // `rows`: the warpgroup's first. Places are found anew for every tile: kept, they would be spilled.
  __device__ explicit QueryRounding(std::byte* rows)
      : rows_(rows), thread_(opaque(static_cast<int>(threadIdx.x % 128))) {}

  // factor[i]: what the numbers of row lane / 4 + 8i of the warp were divided by.
  __device__ void run(float (&factor)[2]) const {
    uint4 words[kChunks];
    std::uint32_t largest = 0;
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      words[k] = *reinterpret_cast<const uint4*>(chunk(wide_slab(k), wide_place(k)));
      largest = largest_of(words[k], largest);
    }
    const RowFactor row = row_factor<kConfig.dtype>(largest);
    __syncwarp();  // all of a row is read
#pragma unroll
    for (int k = 0; k < kChunks; k += 2) {
      const int column = wide_slab(k) * 64 + wide_place(k) * 8;
      *reinterpret_cast<uint4*>(chunk(column / 128, column % 128 / 16)) =
          round_two(words[k], words[k + 1], row.by);
    }
    factor[0] = __shfl_sync(0xffffffff, row.divided, lane() / 4);
    factor[1] = __shfl_sync(0xffffffff, row.divided, lane() / 4 + 8);
  }

 private:
  __device__ int lane() const {
    return thread_ % 32;
  }
  __device__ int half() const {
    return lane() / 16;
  }
  // Where chunk k of the lane stands before it is rounded: the first eight are a slab's.
  __device__ int wide_slab(int k) const {
    return k < 8 ? half() : 2;
  }
  __device__ int wide_place(int k) const {
    return k < 8 ? k : 4 * half() + k - 8;
  }

  __device__ std::byte* chunk(int slab, int place) const {
    const int row = thread_ / 32 * 16 + lane() % 16;
    return rows_ + slab * PrefillShared<kConfig>::kQuerySlabBytes + row * kRowBytes +
           (place ^ (row % 8)) * 16;
  }
  __device__ static uint4 round_two(const uint4& a, const uint4& b, float by) {
    return make_uint4(
        round_quad<kConfig.dtype>(a.x, a.y, by), round_quad<kConfig.dtype>(a.z, a.w, by),
        round_quad<kConfig.dtype>(b.x, b.y, by), round_quad<kConfig.dtype>(b.z, b.w, by));
  }

  std::byte* rows_;
  const int thread_;  // of the warpgroup
};

}  // namespace quire::cuda::hopper
