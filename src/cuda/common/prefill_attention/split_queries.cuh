// SPDX-License-Identifier: Apache-2.0
// The warpgroup's 64 rows of q in shared memory, bf16 to the sum of two numbers of e4m3, in place:
// 64 columns of 16 bits in each of two swizzle columns become 128 columns of the first number in the first
// swizzle column and of the second in the second.
//
// The first keeps 4 of bf16's 8 bits, the second the other 4. A power of two brings each row's
// largest number into [128, 256): what is lost is smaller than it by 2^-18 or more.
#pragma once

#include "cuda/common/prefill_attention/fp8/round_queries.cuh"

namespace quire::cuda {

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
