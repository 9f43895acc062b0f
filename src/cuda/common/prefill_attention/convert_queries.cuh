// SPDX-License-Identifier: Apache-2.0
// The warpgroup's 64 rows of q in shared memory, bf16 to f16, in place.
//
// A power of two brings each row's largest number near the top of f16's range: what is lost is
// smaller than it by 2^-29 or more.
#pragma once

#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/common/softmax/softmax.cuh"

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

}  // namespace quire::cuda
