// SPDX-License-Identifier: Apache-2.0
// Warpgroup products of tiles in shared memory, step by step. A tile is K-major: each row is 128 bytes
// of K, 128-byte swizzle, atoms of 8 rows one after another; it begins on a multiple of 1024 bytes.
#pragma once

#include <cstdint>
#include <utility>

#include "cuda/common/mma/wgmma_shapes.cuh"

namespace quire::cuda {

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
