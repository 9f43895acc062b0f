// SPDX-License-Identifier: Apache-2.0
// The two warps that bring V to products of e4m3: a block comes as the cache holds it, and when it
// has landed both transpose it, each half of its squares. What stands behind the last key, which may
// be anything, becomes zeros before.
#pragma once

#include "cuda/common/mma/warp_mma.cuh"
#include "cuda/common/prefill_attention/fp8/transpose_values.h"
#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/common/thread/thread.cuh"

namespace quire::cuda {

// A block of V of e4m3, 128 keys × 128 columns, transposed where it stands: products of e4m3 want
// neighbouring keys in neighbouring bytes.
//
// The block is 8 × 8 squares of 16 × 16 bytes. What a lane gets of a square by ldmatrix, pairs of keys
// of two columns, are two words of the transposed one after two permutations of bytes: keys
// 2c, 2c + 1, 8 + 2c, 9 + 2c of a column, neighbours in key_at_place()'s order. Squares (i, j) and
// (j, i) change places within one warp, so nobody waits for anybody.

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

template <PrefillConfig kConfig, typename Source> class TransposingLoad {
 public:
  using Shared = PrefillShared<kConfig>;
  using BlockPart = typename Source::BlockPart;

  __device__ TransposingLoad(const typename Source::Params& source, Shared& shared, int half)
      : source_(source, half), shared_(shared), half_(half) {}

  __device__ void run() {
    for (PrefillTile tile = next_tile(); tile.sequence >= 0; tile = next_tile()) {
      BlockPart part = source_.find(tile, tile.end_block - 1);
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        const BlockPart next = source_.find(tile, block - 1);
        load(part, tile.end_key - tile.first_key - block * kConfig.block_keys);
        part = next;
      }
    }
    transpose();
  }

 private:
  __device__ PrefillTile next_tile() { return shared_.take_tile(tile_at_); }

  // While consumers still need the next stage, the block before it has time to be transposed. A
  // tile's last block is behind the next tile's first: nothing that the next tile waits for needs it.
  // `num_keys`: from the block's first to the last of all.
  __device__ void load(const BlockPart& part, int num_keys) {
    if (is_pending_ && !is_empty()) transpose();
    shared_.value_ring.wait_empty(at_);
    FullBarrier& full = shared_.value_ring.full[at_.stage];
    if (half_ == 0 && threadIdx.x % 32 == 0) full.arrive_and_expect_tx(Shared::kCopiedValueBytes);
    __syncwarp();
    source_.load_values(part, shared_.values[at_.stage], full);
    transpose();
    is_pending_ = true;
    num_keys_ = num_keys;
    at_.advance();
  }
  __device__ bool is_empty() const {
    return __shfl_sync(0xffffffff, shared_.value_ring.empty[at_.stage].test_wait(at_.phase ^ 1), 0);
  }
  // The block that was copied last.
  __device__ void transpose() {
    if (!is_pending_) return;
    is_pending_ = false;
    shared_.value_ring.wait_full(transpose_at_);
    if (num_keys_ < kConfig.block_keys) zero_behind(shared_.values[transpose_at_.stage]);
    BlockTranspose(shared_.values[transpose_at_.stage], half_).run();
    cutlass::arch::fence_view_async_shared();
    __syncwarp();
    shared_.values_ready[transpose_at_.stage].arrive();
    transpose_at_.advance();
  }
  // Every other row each; both transpose all of them.
  __device__ void zero_behind(std::byte* block) const {
    zero_rows(block, max(num_keys_, 0) + half_, 2);
    cutlass::arch::NamedBarrier::sync(2 * 32, 2 * kConfig.consumers);
  }

  const Source source_;
  Shared& shared_;
  const int half_;
  bool is_pending_ = false;
  int num_keys_ = 0;  // of the pending block, if less than it holds
  RingPosition<kConfig.value_stages> at_;
  RingPosition<kConfig.value_stages> transpose_at_;
  RingPosition<Shared::kTileRing> tile_at_;
};

}  // namespace quire::cuda
