// SPDX-License-Identifier: Apache-2.0
// Rows in shared memory become A operands of warpgroup products: 64 keys × 64 columns for the scores, 64 columns × 64 keys
// for the values.
//
// e4m3 becomes f16, exactly. A fetched word of K has four neighbouring columns of a key where the instruction wants two and
// two, eight apart. Nothing is moved: the columns of q stand in the same order (load_units.cuh).
#pragma once

#include "cuda/common/mma/warp_mma.cuh"
#include "cuda/sm90/mla_decode/latent/shared.cuh"
#include "cuda/sm90/mla_decode/swap_ab/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

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

// Keys of a unit × 64 columns. Those of e4m3 are fetched first and converted later, so that one runs ahead.
template <SwapAbKind kKind> struct KeyOperands {
  using Rows = UnitRows<kKind>;
  using Raw = std::uint32_t[8];
  using Words = std::uint32_t[kOperandWords];

  // A lane's place in a unit; others are further along its row.
  __device__ static int place(int lane) { return Rows::offset(lane % 16, lane / 16); }

  // Columns from piece `chunk` of the rows on.
  __device__ static void fetch_bf16(const std::byte* unit, int place, int chunk, Words& words) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      fetch_four(unit + Rows::further(place, chunk + 2 * step), &words[4 * step]);
    }
  }
  __device__ static void fetch_fp8(const std::byte* unit, int place, int chunk, Raw& raw) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      fetch_four(unit + Rows::further(place, chunk + 2 * i), &raw[4 * i]);
    }
  }
  // Rope columns of rows that have no others than e4m3.
  __device__ static void fetch_tail(const std::byte* unit, Raw& raw) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      fetch_four(unit + Rows::tail(lane % 16, lane / 16 + 2 * i), &raw[4 * i]);
    }
  }
  __device__ static void convert(const Raw& raw, Words& words) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      std::uint32_t* a = &words[4 * step];
      f16_pairs(raw[2 * step], a[0], a[2]);
      f16_pairs(raw[2 * step + 1], a[1], a[3]);
    }
  }

 private:
  __device__ static void fetch_four(const std::byte* at, std::uint32_t* words) {
    std::uint32_t four[4];
    load_matrices(at, four);
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = four[i];
  }
};

// Values of a tile × 64 columns, in the same way.
template <SwapAbKind kKind> struct ValueOperands {
  static constexpr DType kElement = DType::f16;
  using Rows = UnitRows<kKind>;
  using Raw = std::uint32_t[8];
  static constexpr int kUnits = 2;        // that a lane has rows of
  static constexpr int kBlockChunks = 4;  // from 64 columns to the next

  // Unit `index` of these, and the place in it of the warp's first 16 columns.
  __device__ static int unit(int index, int lane) { return 2 * index + lane / 16; }
  __device__ static int place(int warp, int lane) { return Rows::offset(lane % 16, warp); }

  // `block`: of 64 columns, from those at `place` on.
  __device__ static void fetch(const std::byte* const (&units)[kUnits], int place, int block,
                               Raw& raw) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      std::uint32_t four[4];
      load_transposed(units[i] + Rows::further(place, kBlockChunks * block), four);
#pragma unroll
      for (int j = 0; j < 4; ++j) raw[4 * i + j] = four[j];
    }
  }
  // Row r of the products' 16 of a warp is column 2r of its 16, row r + 8 the one after it.
  __device__ static void convert(const Raw& raw, std::uint32_t (&words)[kOperandWords]) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      std::uint32_t* a = &words[4 * step];
      f16_pairs(__byte_perm(raw[2 * step], raw[2 * step + 1], 0x6420), a[0], a[2]);
      f16_pairs(__byte_perm(raw[2 * step], raw[2 * step + 1], 0x7531), a[1], a[3]);
    }
  }
};

// Nothing is left to be converted.
template <> struct ValueOperands<SwapAbKind::bf16> {
  static constexpr DType kElement = DType::bf16;
  using Rows = UnitRows<SwapAbKind::bf16>;
  using Raw = std::uint32_t[kOperandWords];
  static constexpr int kUnits = 4;
  static constexpr int kBlockChunks = 8;

  __device__ static int unit(int index, int) { return index; }
  __device__ static int place(int warp, int lane) {
    return Rows::offset(lane % 8 + lane / 16 * 8, 2 * warp + lane / 8 % 2);
  }
  __device__ static void fetch(const std::byte* const (&units)[kUnits], int place, int block,
                               Raw& words) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      std::uint32_t four[4];
      load_transposed(units[step] + Rows::further(place, kBlockChunks * block), four);
#pragma unroll
      for (int i = 0; i < 4; ++i) words[4 * step + i] = four[i];
    }
  }
};

// sums (+)= 64 × 64 of registers · a swizzle column of 64 columns of q, or of as many keys' weights. kRows: of q.
template <DType kElement, int kRows>
__device__ inline void start_product(std::uint32_t (&words)[kOperandWords],
                                     std::uint32_t swizzle_column, float (&sums)[kRows / 2],
                                     bool starts_sum) {
  pin(words);
  cute::warpgroup_arrive();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    detail::issue<RowWgmma<kElement, kRows>>(
        &words[4 * step], descriptor(swizzle_column + (step * kStepBytes >> 4), kRowsHigh), sums,
        starts_sum && step == 0 ? cute::SM90::GMMA::ScaleOut::Zero
                                : cute::SM90::GMMA::ScaleOut::One,
        std::make_index_sequence<kRows / 2>{});
  }
  cute::warpgroup_commit_batch();
}

}  // namespace quire::cuda::sm90::mla_decode
