// SPDX-License-Identifier: Apache-2.0
// Rows in shared memory become A operands of warpgroup products: 64 keys × 64 columns for the scores,
// 64 columns × 64 keys for the values. Fetched first, converted later, so that one runs ahead.
//
// e4m3: a fetched word of K has four neighbouring columns of a key where the instruction wants two and
// two, eight apart. Nothing is moved: the columns of q stand in the same order (load_tile_queries.cuh).
#pragma once

#include "cuda/hopper/flash_attention/decode/fragments.cuh"
#include "cuda/hopper/mla_decode/few_rows/shared.cuh"

namespace quire::cuda::hopper {

inline constexpr int kOperandWords = 16;  // of a thread, for 64 × 64

// Four of e4m3 as two pairs of f16, exactly.
__device__ inline void f16_pairs(std::uint32_t four, std::uint32_t& low, std::uint32_t& high) {
  asm("{\n"
      ".reg .b16 l, h;\n"
      "mov.b32 {l, h}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, l;\n"
      "cvt.rn.f16x2.e4m3x2 %1, h;\n"
      "}"
      : "=r"(low), "=r"(high)
      : "r"(four));
}
template <DType kLatents> struct Operands;

template <> struct Operands<DType::fp8_e4m3> {
  static constexpr DType kElement = DType::f16;  // of keys and values, of q and weights
  using Raw = std::uint32_t[8];
  static constexpr int kValueRows = 2;  // addresses of a lane for 64 keys

  // Where piece `chunk` of 16 bytes of a row stands in its unit.
  __device__ static int offset(int row, int chunk) {
    return row * FewRowsConfig::kFp8Pitch + chunk * 16;
  }
  // This lane's place in a unit of keys.
  __device__ static int key_offset(int lane) { return offset(lane % 16, lane / 16); }
  // Of address `index` for the values: the unit, and the place in it of the warp's 16 columns.
  __device__ static int value_unit(int index, int lane) { return 2 * index + lane / 16; }
  __device__ static int value_offset(int warp, int lane) { return offset(lane % 16, warp); }

  // `byte`: from the unit's first columns to those that are wanted.
  __device__ static void fetch_keys(const std::byte* at, int byte, Raw& raw) {
    load_four(at + byte, raw, 0);
    load_four(at + byte + 32, raw, 4);
  }
  __device__ static void convert_keys(const Raw& raw, std::uint32_t (&words)[kOperandWords]) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      std::uint32_t* a = &words[4 * step];
      f16_pairs(raw[2 * step], a[0], a[2]);
      f16_pairs(raw[2 * step + 1], a[1], a[3]);
    }
  }

  __device__ static void fetch_values(const std::byte* const (&at)[kValueRows], int byte,
                                      Raw& raw) {
#pragma unroll
    for (int i = 0; i < kValueRows; ++i) {
      std::uint32_t four[4];
      load_transposed(at[i] + byte, four);
#pragma unroll
      for (int j = 0; j < 4; ++j) raw[4 * i + j] = four[j];
    }
  }
  // Row r of the products' 16 of a warp is column 2r of its 16, row r + 8 the one after it.
  __device__ static void convert_values(const Raw& raw, std::uint32_t (&words)[kOperandWords]) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      std::uint32_t* a = &words[4 * step];
      f16_pairs(__byte_perm(raw[2 * step], raw[2 * step + 1], 0x6420), a[0], a[2]);
      f16_pairs(__byte_perm(raw[2 * step], raw[2 * step + 1], 0x7531), a[1], a[3]);
    }
  }

 private:
  __device__ static void load_four(const std::byte* at, Raw& raw, int first) {
    std::uint32_t four[4];
    load_matrices(at, four);
#pragma unroll
    for (int i = 0; i < 4; ++i) raw[first + i] = four[i];
  }
};

template <> struct Operands<DType::bf16> {
  static constexpr DType kElement = DType::bf16;
  using Raw = std::uint32_t[kOperandWords];
  static constexpr int kValueRows = 4;

  __device__ static int offset(int row, int chunk) {
    return chunk / 8 * FewRowsConfig::kSlabBytes + slab_offset(row, chunk % 8);
  }
  __device__ static int key_offset(int lane) { return offset(lane % 16, lane / 16); }
  __device__ static int value_unit(int index, int) { return index; }
  __device__ static int value_offset(int warp, int lane) {
    return offset(lane % 8 + lane / 16 * 8, 2 * warp + lane / 8 % 2);
  }

  // Nothing is left to be converted. A step is two pieces of the swizzled row further.
  __device__ static void fetch_keys(const std::byte* at, int byte, Raw& words) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const auto place = reinterpret_cast<std::uintptr_t>(at) ^ (32U * step);
      fetch(reinterpret_cast<const std::byte*>(place) + byte, step, words);
    }
  }
  // The same of rope columns in a row of e4m3.
  __device__ static void fetch_spaced(const std::byte* at, Raw& words) {
#pragma unroll
    for (int step = 0; step < 4; ++step) fetch(at + 32 * step, step, words);
  }
  __device__ static void fetch_values(const std::byte* const (&at)[kValueRows], int byte,
                                      Raw& words) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      std::uint32_t four[4];
      load_transposed(at[step] + byte, four);
#pragma unroll
      for (int i = 0; i < 4; ++i) words[4 * step + i] = four[i];
    }
  }

 private:
  __device__ static void fetch(const std::byte* at, int step, Raw& words) {
    std::uint32_t four[4];
    load_matrices(at, four);
#pragma unroll
    for (int i = 0; i < 4; ++i) words[4 * step + i] = four[i];
  }
};

}  // namespace quire::cuda::hopper
