// SPDX-License-Identifier: Apache-2.0
// Rows of e4m3 in shared memory become A operands of warpgroup products.
//
// A fetched word of K has four neighbouring columns of a key where the instruction wants two and two,
// eight apart. Nothing is moved: the columns of q stand in the same order (load_tile_queries.cuh).
#pragma once

#include "cuda/hopper/flash_attention/decode/fragments.cuh"
#include "cuda/hopper/latent_attention/convert_row.cuh"
#include "cuda/hopper/latent_attention/shared.cuh"

namespace quire::cuda::hopper {

inline constexpr int kOperandWords = 16;  // of a thread, for 64 × 64

// 64 keys × 64 columns, f16, exactly. `slab`: rows of kBytes; `chunk`: the first of four of 16 bytes.
template <int kBytes>
__device__ inline void key_words(const std::byte* slab, int chunk,
                                 std::uint32_t (&words)[kOperandWords]) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const int key = static_cast<int>(threadIdx.x % 128 / 32 * 16) + lane % 16;
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const int place = chunk + 2 * pair + lane / 16;
    std::uint32_t raw[4];
    load_matrices(slab + (kBytes == kRowBytes ? slab_offset(key, place) : tail_offset(key, place)),
                  raw);
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      std::uint32_t* a = &words[8 * pair + 4 * step];
      a[0] = low_to_f16(raw[2 * step]);
      a[1] = low_to_f16(raw[2 * step + 1]);
      a[2] = high_to_f16(raw[2 * step]);
      a[3] = high_to_f16(raw[2 * step + 1]);
    }
  }
}

__device__ inline std::uint32_t bf16_of_two(std::uint32_t fp8) {
  const float2 pair = float_pair(static_cast<std::uint16_t>(fp8));
  return bf16_pair(pair.x, pair.y);
}

// 64 columns × 64 keys, bf16, exactly: scales, which may be of any size, are the weights' part. Row r of
// the products' 16 of a warp is column 2r of its 16, row r + 8 the one after it. `chunk`: the first of
// four of 16 bytes of the slab's rows.
__device__ inline void value_words(const std::byte* slab, int chunk,
                                   std::uint32_t (&words)[kOperandWords]) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const int place = chunk + static_cast<int>(threadIdx.x % 128 / 32);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    std::uint32_t raw[4];
    load_transposed(slab + slab_offset(32 * half + lane, place), raw);
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const std::uint32_t even = __byte_perm(raw[2 * step], raw[2 * step + 1], 0x6420);
      const std::uint32_t odd = __byte_perm(raw[2 * step], raw[2 * step + 1], 0x7531);
      std::uint32_t* a = &words[8 * half + 4 * step];
      a[0] = bf16_of_two(even & 0xffff);
      a[1] = bf16_of_two(odd & 0xffff);
      a[2] = bf16_of_two(even >> 16);
      a[3] = bf16_of_two(odd >> 16);
    }
  }
}

}  // namespace quire::cuda::hopper
