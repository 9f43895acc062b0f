// SPDX-License-Identifier: Apache-2.0
// Warpgroup products of tiles in shared memory, step by step. A tile is K-major: each row is 128 bytes
// of K, 128-byte swizzle, atoms of 8 rows one after another; it begins on a multiple of 1024 bytes.
#pragma once

#include <cute/arch/mma_sm90_gmma.hpp>

#include <cstdint>
#include <utility>

#include "quire/dtype.h"

namespace quire::cuda {

// Warpgroup instructions by name: 64 rows of A, K-major in shared memory or in registers, times kN columns of B, sums in
// fp32. CuTe's own choice among all shapes would bring 60 thousand lines more (sparse and odd ones), and three
// quarters of a kernel's compile time were headers. A kN that is missing here may be in wgmma_odd_shapes.cuh.

namespace gmma = cute::SM90::GMMA;

// kB: Major::K where rows of B lie along K, Major::MN where B is a transposed tile, of 16-bit numbers only.
template <DType kDType, int kN> struct WgmmaShape;
template <> struct WgmmaShape<DType::bf16, 8> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x8x16_F32BF16BF16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x8x16_F32BF16BF16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::bf16, 16> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x16x16_F32BF16BF16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x16x16_F32BF16BF16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::bf16, 32> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x32x16_F32BF16BF16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x32x16_F32BF16BF16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::bf16, 64> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x64x16_F32BF16BF16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x64x16_F32BF16BF16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::bf16, 96> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x96x16_F32BF16BF16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x96x16_F32BF16BF16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::bf16, 128> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x128x16_F32BF16BF16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB>
  using Registers = gmma::MMA_64x128x16_F32BF16BF16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::bf16, 192> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x192x16_F32BF16BF16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB>
  using Registers = gmma::MMA_64x192x16_F32BF16BF16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::bf16, 256> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x256x16_F32BF16BF16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB>
  using Registers = gmma::MMA_64x256x16_F32BF16BF16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::f16, 8> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x8x16_F32F16F16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x8x16_F32F16F16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::f16, 16> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x16x16_F32F16F16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x16x16_F32F16F16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::f16, 32> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x32x16_F32F16F16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x32x16_F32F16F16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::f16, 64> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x64x16_F32F16F16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x64x16_F32F16F16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::f16, 96> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x96x16_F32F16F16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x96x16_F32F16F16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::f16, 128> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x128x16_F32F16F16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x128x16_F32F16F16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::f16, 192> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x192x16_F32F16F16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x192x16_F32F16F16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::f16, 256> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x256x16_F32F16F16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x256x16_F32F16F16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 8> {
  template <gmma::Major> using Shared = gmma::MMA_64x8x32_F32E4M3E4M3_SS_TN<>;
  template <gmma::Major> using Registers = gmma::MMA_64x8x32_F32E4M3E4M3_RS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 16> {
  template <gmma::Major> using Shared = gmma::MMA_64x16x32_F32E4M3E4M3_SS_TN<>;
  template <gmma::Major> using Registers = gmma::MMA_64x16x32_F32E4M3E4M3_RS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 32> {
  template <gmma::Major> using Shared = gmma::MMA_64x32x32_F32E4M3E4M3_SS_TN<>;
  template <gmma::Major> using Registers = gmma::MMA_64x32x32_F32E4M3E4M3_RS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 64> {
  template <gmma::Major> using Shared = gmma::MMA_64x64x32_F32E4M3E4M3_SS_TN<>;
  template <gmma::Major> using Registers = gmma::MMA_64x64x32_F32E4M3E4M3_RS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 96> {
  template <gmma::Major> using Shared = gmma::MMA_64x96x32_F32E4M3E4M3_SS_TN<>;
  template <gmma::Major> using Registers = gmma::MMA_64x96x32_F32E4M3E4M3_RS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 128> {
  template <gmma::Major> using Shared = gmma::MMA_64x128x32_F32E4M3E4M3_SS_TN<>;
  template <gmma::Major> using Registers = gmma::MMA_64x128x32_F32E4M3E4M3_RS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 192> {
  template <gmma::Major> using Shared = gmma::MMA_64x192x32_F32E4M3E4M3_SS_TN<>;
  template <gmma::Major> using Registers = gmma::MMA_64x192x32_F32E4M3E4M3_RS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 256> {
  template <gmma::Major> using Shared = gmma::MMA_64x256x32_F32E4M3E4M3_SS_TN<>;
  template <gmma::Major> using Registers = gmma::MMA_64x256x32_F32E4M3E4M3_RS_TN<>;
};

// Both operands in shared memory.
template <DType kDType, int kN>
using Wgmma = typename WgmmaShape<kDType, kN>::template Shared<gmma::Major::K>;
// The same, B a transposed tile.
template <DType kDType, int kN>
using TransposedWgmma = typename WgmmaShape<kDType, kN>::template Shared<gmma::Major::MN>;

// A in registers, B's rows are 128 bytes of K.
template <DType kDType, int kN>
using RowWgmma = typename WgmmaShape<kDType, kN>::template Registers<gmma::Major::K>;
// A in registers, B a transposed tile.
template <DType kDType, int kN>
using RegisterWgmma = typename WgmmaShape<kDType, kN>::template Registers<gmma::Major::MN>;

inline constexpr int kRowBytes = 128;  // of a swizzled tile
inline constexpr int kWgmmaRows = 64;  // M of every instruction
inline constexpr int kStepBytes = 32;  // K of one instruction

// What the instruction is told of a tile: address, 1024 bytes between atoms, swizzle b128. Adding
// bytes / 16 to it moves along K (within the row) or down whole atoms.
__device__ inline std::uint64_t tile_descriptor(const void* tile) {
  const std::uint64_t address = __cvta_generic_to_shared(tile);
  return (address >> 4) | (std::uint64_t{1} << 16) | (std::uint64_t{1024 >> 4} << 32) |
         (std::uint64_t{1} << 62);
}

namespace detail {
template <typename Op, int kRegisters, std::size_t... kIndex>
__device__ inline void issue(std::uint64_t a, std::uint64_t b, float (&sums)[kRegisters],
                             gmma::ScaleOut scale, std::index_sequence<kIndex...>) {
  Op::fma(a, b, sums[kIndex]..., scale);
}

template <typename Op, int kRegisters, std::size_t... kIndex>
__device__ inline void issue(const std::uint32_t* a, std::uint64_t b, float (&sums)[kRegisters],
                             gmma::ScaleOut scale, std::index_sequence<kIndex...>) {
  Op::fma(a[0], a[1], a[2], a[3], b, sums[kIndex]..., scale);
}
}  // namespace detail

// sums (+)= A · Bᵀ over one row's 128 bytes of K, or the first kSteps · 32 of them. Thread t holds row
// 16 (t / 32) + (t % 32) / 4 + 8i, column 8j + 2 (t % 4) + e in sums[4j + 2i + e]. Between wgmma fence
// and commit.
template <typename Op, int kSteps = kRowBytes / kStepBytes, int kRegisters>
__device__ inline void multiply_rows(std::uint64_t a, std::uint64_t b, float (&sums)[kRegisters],
                                     bool starts_sum) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const bool is_first = starts_sum && step == 0;
    detail::issue<Op>(a + step * (kStepBytes >> 4), b + step * (kStepBytes >> 4), sums,
                      is_first ? gmma::ScaleOut::Zero : gmma::ScaleOut::One,
                      std::make_index_sequence<kRegisters>{});
  }
}

// The same tile read across its rows: what varies within a row is N (or M), the rows are K. Swizzle columns of
// 64 16-bit columns stand swizzle_column_bytes apart. Adding bytes / 16 moves down the rows.
__device__ inline std::uint64_t transposed_descriptor(const void* tile, int swizzle_column_bytes) {
  const std::uint64_t address = __cvta_generic_to_shared(tile);
  return (address >> 4) | (static_cast<std::uint64_t>(swizzle_column_bytes >> 4) << 16) |
         (std::uint64_t{1024 >> 4} << 32) | (std::uint64_t{1} << 62);
}

// A descriptor without the CTA's rank, which addresses in a cluster carry above the instruction's: there it would add to
// the distance between swizzle columns.
__device__ inline std::uint64_t without_rank(std::uint64_t descriptor) {
  return descriptor & ~(std::uint64_t{0xf} << 20);
}

// sums (+)= A · B over 4 · kWords of K: A's 16-bit pairs lie as the sums of a product do, a[i] holds
// its sums 2i and 2i + 1.
template <typename Op, int kWords, int kRegisters>
__device__ inline void multiply_registers(const std::uint32_t (&a)[kWords], std::uint64_t b,
                                          float (&sums)[kRegisters], bool starts_sum) {
  constexpr int kStepRows = 16;
#pragma unroll
  for (int step = 0; step < kWords / 4; ++step) {
    const bool is_first = starts_sum && step == 0;
    detail::issue<Op>(&a[4 * step], b + step * (kStepRows * kRowBytes >> 4), sums,
                      is_first ? gmma::ScaleOut::Zero : gmma::ScaleOut::One,
                      std::make_index_sequence<kRegisters>{});
  }
}

// Keeps the compiler from moving uses of the sums across an asynchronous product.
template <int kRegisters> __device__ inline void pin(float (&sums)[kRegisters]) {
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) cute::warpgroup_fence_operand(sums[i]);
}

template <int kWords> __device__ inline void pin(std::uint32_t (&words)[kWords]) {
#pragma unroll
  for (int i = 0; i < kWords; ++i) cute::warpgroup_fence_operand(words[i]);
}

}  // namespace quire::cuda
