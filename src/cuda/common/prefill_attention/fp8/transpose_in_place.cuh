// SPDX-License-Identifier: Apache-2.0
// A block of V of e4m3, 128 keys × 128 columns, transposed where it stands: products of e4m3 want
// neighbouring keys in neighbouring bytes.
//
// The block is 8 × 8 squares of 16 × 16 bytes. What a lane gets of a square by ldmatrix, pairs of keys
// of two columns, are two words of the transposed one after two permutations of bytes: keys
// 2c, 2c + 1, 8 + 2c, 9 + 2c of a column, neighbours in key_at_place()'s order. Squares (i, j) and
// (j, i) change places within one warp, so nobody waits for anybody.
#pragma once

#include "cuda/common/mma/matrix_store.cuh"
#include "cuda/common/prefill_attention/fp8/transpose_values.h"
#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/common/thread/block_address.cuh"
#include "cuda/common/thread/opaque.cuh"

namespace quire::cuda {

// Squares are 16 rows, a chunk of 16 bytes wide: moving both by i changes these bits of an address.
inline constexpr std::uint32_t kSquareRow = 16 * kRowBytes;
inline constexpr std::uint32_t kSquareChunk = 16;

// By a whole warp: zeros in every `step`-th row from `first` on.
__device__ inline void zero_rows(std::byte* block, int first, int step) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  for (int row = first; row < kTransposedKeys; row += step) {
    *reinterpret_cast<std::uint32_t*>(block + row * kRowBytes + lane * (kRowBytes / 32)) = 0;
  }
}

// One of a block's two warps: two of the four pairs of squares at each distance.
class BlockTranspose {
 public:
  __device__ BlockTranspose(std::byte* block, int half) {
    const auto lane = static_cast<std::uint32_t>(threadIdx.x % 32);
    const std::uint32_t row = lane % 16;
    // Of the columns 0 – 15 that the lane's address is for. Of a pair the upper lanes store the odd
    // one first: eight rows that are stored together then hit different banks.
    const std::uint32_t column = 2 * (lane % 8) + (lane / 8 % 2 ^ lane % 8 / 4);
    const bool is_second = lane >= 16;  // square (j, i)
    base_ = shared_address(block);
    from_ = static_cast<std::uint32_t>(opaque(swizzled(row)));
    to_ = static_cast<std::uint32_t>(opaque(swizzled(column)));
    from_step_ = is_second ? kSquareRow : kSquareChunk;
    to_step_ = is_second ? kSquareChunk : kSquareRow;
    half_ = static_cast<std::uint32_t>(half);
    diagonal_ = is_second ? 1 : 0;
    first_bytes_ = is_second ? kOddBytes : kEvenBytes;
    second_bytes_ = is_second ? kEvenBytes : kOddBytes;
  }

  __device__ void run() const {
    transpose_pairs<0>();
    transpose_pairs<1>();
    transpose_pairs<2>();
    transpose_pairs<3>();
    transpose_pairs<4>();
    transpose_pairs<5>();
    transpose_pairs<6>();
    transpose_pairs<7>();
  }

 private:
  // Of two words with keys of an even and an odd column.
  static constexpr std::uint32_t kEvenBytes = 0x6420;
  static constexpr std::uint32_t kOddBytes = 0x7531;

  __device__ static int swizzled(std::uint32_t row) {
    return static_cast<int>(row * kRowBytes ^ row % 8 * 16);
  }
  // The k-th i of this warp with i < i ^ distance: k with a zero put in at the distance's highest
  // bit.
  template <std::uint32_t kDistance> __device__ std::uint32_t first_of(std::uint32_t k) const {
    constexpr std::uint32_t kBit = kDistance >= 4 ? 4 : kDistance >= 2 ? 2 : 1;
    const std::uint32_t at = 2 * half_ + k;
    return at / kBit * (2 * kBit) + at % kBit;
  }
  // What moves an address to its squares (i, i ^ distance) and back; on the diagonal, two squares
  // that stay.
  template <std::uint32_t kDistance>
  __device__ std::uint32_t moved(std::uint32_t at, std::uint32_t step, std::uint32_t k) const {
    const std::uint32_t i =
        kDistance == 0 ? 2 * (2 * half_ + k) + diagonal_ : first_of<kDistance>(k);
    return base_ + (at ^ i * (kSquareRow + kSquareChunk) ^ kDistance * step);
  }

  // The warp's two pairs at a distance.
  template <std::uint32_t kDistance> __device__ void transpose_pairs() const {
    const uint4 first = load(moved<kDistance>(from_, from_step_, 0));
    const uint4 second = load(moved<kDistance>(from_, from_step_, 1));
    store_matrices(moved<kDistance>(to_, to_step_, 0), pair_keys(first));
    store_matrices(moved<kDistance>(to_, to_step_, 1), pair_keys(second));
  }

  // Keys 2c, 2c + 1 of two columns, and 8 behind them: one column, then the other; of either square.
  __device__ uint4 pair_keys(const uint4& four) const {
    return make_uint4(
        __byte_perm(four.x, four.y, first_bytes_), __byte_perm(four.x, four.y, second_bytes_),
        __byte_perm(four.z, four.w, first_bytes_), __byte_perm(four.z, four.w, second_bytes_));
  }
  __device__ static uint4 load(std::uint32_t from) {
    uint4 words;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "r"(from)
                 : "memory");
    return words;
  }

  std::uint32_t base_;
  std::uint32_t from_;  // of square (0, 0): the key's row, and the column's
  std::uint32_t to_;
  std::uint32_t from_step_;  // to the other square of a pair
  std::uint32_t to_step_;
  std::uint32_t half_;
  std::uint32_t diagonal_;
  std::uint32_t first_bytes_;
  std::uint32_t second_bytes_;
};

}  // namespace quire::cuda
