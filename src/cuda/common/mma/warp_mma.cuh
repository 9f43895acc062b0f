// SPDX-License-Identifier: Apache-2.0
// mma.sync, ldmatrix and stmatrix: products of one warp and their fragments.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <vector_types.h>
#include <cute/arch/copy_sm75.hpp>
#include <cute/arch/mma_sm80.hpp>

#include <cstddef>
#include <cstdint>

#include "quire/dtype.h"

namespace quire::cuda {

// Products of a warp by itself, for what is too little for a warpgroup.

// Four squares of 8 × 8 16-bit numbers; lane i gives the address of row i % 8 of square i / 8, in shared memory.
__device__ inline void load_squares(unsigned row, std::uint32_t (&squares)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(squares[0]), "=r"(squares[1]), "=r"(squares[2]), "=r"(squares[3])
               : "r"(row)
               : "memory");
}

// sums [16][8] += a [16][16] · b [8][16]ᵀ, of bf16 or f16.
template <DType kDType>
__device__ inline void add_product(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                   std::uint32_t b1) {
  if constexpr (kDType == DType::bf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Operands of warp products (m16 n8 k16) out of swizzled swizzle columns: rows of 128 bytes, whose eight
// 16-byte vectors are permuted by the row's number modulo 8.
//
// e4m3 becomes f16, exactly. A fetched word then holds four neighbouring numbers of a row where the
// instruction wants two and two, eight apart; instead of moving them, the order of a head's columns is
// changed within groups of 16: the same for K and Q, undone when the sums are stored.

// Four 8 × 8 matrices of 16 bits; lane l names row l % 8 of matrix l / 8.
__device__ inline void load_matrices(const std::byte* row, std::uint32_t (&words)[4]) {
  cute::SM75_U32x4_LDSM_N::copy(*reinterpret_cast<const cute::uint128_t*>(row), words[0], words[1],
                                words[2], words[3]);
}
__device__ inline void load_transposed(const std::byte* row, std::uint32_t (&words)[4]) {
  cute::SM75_U16x8_LDSM_T::copy(*reinterpret_cast<const cute::uint128_t*>(row), words[0], words[1],
                                words[2], words[3]);
}

// The products are of bf16 or, for f16 and fp8 caches, of f16.
template <DType kDType> struct WarpProduct {
  static constexpr bool kIsBf16 = kDType == DType::bf16;

  // sums [16 × 8] += a [16 × 16] · b [16 × 8]
  __device__ static void add(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                             std::uint32_t b1) {
    if constexpr (kIsBf16) {
      cute::SM80_16x8x16_F32BF16BF16F32_TN::fma(sums[0], sums[1], sums[2], sums[3], a[0], a[1],
                                                a[2], a[3], b0, b1, sums[0], sums[1], sums[2],
                                                sums[3]);
    } else {
      cute::SM80_16x8x16_F32F16F16F32_TN::fma(sums[0], sums[1], sums[2], sums[3], a[0], a[1], a[2],
                                              a[3], b0, b1, sums[0], sums[1], sums[2], sums[3]);
    }
  }
  __device__ static std::uint32_t pack(float low, float high) {
    if constexpr (kIsBf16) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
      return reinterpret_cast<const std::uint32_t&>(pair);
    } else {
      const __half2 pair = __floats2half2_rn(low, high);
      return reinterpret_cast<const std::uint32_t&>(pair);
    }
  }
};

// Two e4m3 in the low or high half of a word.
__device__ inline std::uint32_t low_to_f16(std::uint32_t word) {
  const __half2_raw pair =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(word & 0xffff), __NV_E4M3);
  return reinterpret_cast<const std::uint32_t&>(pair);
}
__device__ inline std::uint32_t high_to_f16(std::uint32_t word) {
  return low_to_f16(word >> 16);
}

// The column of a head behind number `index` of quad lane `quad` in a group of 16 columns, for the
// operands over K's columns: words 0 and 1 of a row hold numbers 0, 1 and 2, 3.
template <DType kDType> __device__ constexpr int query_column(int quad, int index) {
  if constexpr (kDType == DType::fp8_e4m3) return 4 * quad + index;
  return 2 * quad + index % 2 + 8 * (index / 2);
}

// Lane's share of the two blocks of 8 keys that a warp multiplies at a time.
struct FragmentLane {
  int lane = static_cast<int>(threadIdx.x % 32);

  __device__ int row() const { return lane % 8; }
  __device__ int low_bit() const { return lane / 8 % 2; }
  __device__ int high_bit() const { return lane / 16; }
};

// K of 16 keys × 32 columns from column 32 · step on, as B operands: words[2k + n] for columns
// [16k, 16k + 16) and keys [8n, 8n + 8). `keys` begins at the warp's first key.
template <DType kDType>
__device__ inline void load_key_operands(const std::byte* keys, int swizzle_column_bytes, int step,
                                         std::uint32_t (&low)[4], std::uint32_t (&high)[4]) {
  const FragmentLane at;
  if constexpr (kDType == DType::fp8_e4m3) {
    const std::byte* swizzle_column = keys + step / 4 * swizzle_column_bytes;
    const int vector = step % 4 * 2 + at.high_bit();
    std::uint32_t words[4];
    load_matrices(swizzle_column + (at.low_bit() * 8 + at.row()) * 128 + ((vector ^ at.row()) << 4),
                  words);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      low[i] = low_to_f16(words[i]);
      high[i] = high_to_f16(words[i]);
    }
  } else {
    const std::byte* swizzle_column = keys + step / 2 * swizzle_column_bytes;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int vector = step % 2 * 4 + k * 2 + at.low_bit();
      std::uint32_t words[4];
      load_matrices(
          swizzle_column + (at.high_bit() * 8 + at.row()) * 128 + ((vector ^ at.row()) << 4),
          words);
      low[2 * k] = words[0];
      high[2 * k] = words[1];
      low[2 * k + 1] = words[2];
      high[2 * k + 1] = words[3];
    }
  }
}

// V of 16 keys × 32 columns from column 32 · step on, transposed: A operands [16 columns × 16 keys].
// Words 0 and 1 are of keys [0, 8), words 2 and 3 of keys [8, 16).
template <DType kDType>
__device__ inline void load_value_operands(const std::byte* values, int swizzle_column_bytes,
                                           int step, std::uint32_t (&operands)[2][4]) {
  const FragmentLane at;
  const int key = at.low_bit() * 8 + at.row();
  if constexpr (kDType == DType::fp8_e4m3) {
    const std::byte* swizzle_column = values + step / 4 * swizzle_column_bytes;
    const int vector = step % 4 * 2 + at.high_bit();
    std::uint32_t words[4];
    load_transposed(swizzle_column + key * 128 + ((vector ^ at.row()) << 4), words);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      // Two keys of two columns each: the even column's four keys, then the odd one's.
      const std::uint32_t even = __byte_perm(words[2 * k], words[2 * k + 1], 0x6420);
      const std::uint32_t odd = __byte_perm(words[2 * k], words[2 * k + 1], 0x7531);
      operands[k][0] = low_to_f16(even);
      operands[k][1] = low_to_f16(odd);
      operands[k][2] = high_to_f16(even);
      operands[k][3] = high_to_f16(odd);
    }
  } else {
    const std::byte* swizzle_column = values + step / 2 * swizzle_column_bytes;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int vector = step % 2 * 4 + k * 2 + at.high_bit();
      std::uint32_t words[4];
      load_transposed(swizzle_column + key * 128 + ((vector ^ at.row()) << 4), words);
      operands[k][0] = words[0];
      operands[k][1] = words[2];
      operands[k][2] = words[1];
      operands[k][3] = words[3];
    }
  }
}

// The column of V behind row lane / 4 + 8 · half of the products of group `group` of 16 columns.
template <DType kDType> __device__ constexpr int value_column(int group, int row, int half) {
  if constexpr (kDType == DType::fp8_e4m3) return 16 * group + 2 * row + half;
  return 16 * group + row + 8 * half;
}

// Four matrices of 8 × 8 numbers of 16 bits from a warp's registers, as products leave them, into
// shared memory: lane l names the place of row l % 8 of matrix l / 8.

__device__ inline void store_matrices(std::uint32_t to, const uint4& words) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w)
               : "memory");
}

}  // namespace quire::cuda
