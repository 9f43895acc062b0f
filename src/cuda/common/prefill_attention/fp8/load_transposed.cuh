// SPDX-License-Identifier: Apache-2.0
// The two warps that bring V to products of e4m3: a block comes as the cache holds it, and when it
// has landed both transpose it, each half of its squares. What stands behind the last key, which may
// be anything, becomes zeros before.
#pragma once

#include "cuda/common/prefill_attention/fp8/transpose_in_place.cuh"

namespace quire::cuda {

template <PrefillConfig kConfig, typename Source> class TransposingLoad {
 public:
  using Shared = PrefillShared<kConfig>;
  using Piece = typename Source::Piece;

  __device__ TransposingLoad(const typename Source::Params& source, Shared& shared, int half)
      : source_(source, half), shared_(shared), half_(half) {}

  __device__ void run() {
    for (PrefillTile tile = next_tile(); tile.sequence >= 0; tile = next_tile()) {
      Piece piece = source_.find(tile, tile.end_block - 1);
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        const Piece next = source_.find(tile, block - 1);
        load(piece, tile.end_key - tile.first_key - block * kConfig.block_keys);
        piece = next;
      }
    }
    transpose();
  }

 private:
  __device__ PrefillTile next_tile() { return shared_.take_tile(tile_at_); }

  // While consumers still need the next stage, the block before it has time to be transposed. A
  // tile's last block is behind the next tile's first: nothing that the next tile waits for needs it.
  // `num_keys`: from the block's first to the last of all.
  __device__ void load(const Piece& piece, int num_keys) {
    if (is_pending_ && !is_empty()) transpose();
    shared_.value_ring.wait_empty(at_);
    FullBarrier& full = shared_.value_ring.full[at_.stage];
    if (half_ == 0 && threadIdx.x % 32 == 0) full.arrive_and_expect_tx(Shared::kCopiedValueBytes);
    __syncwarp();
    source_.load_values(piece, shared_.values[at_.stage], full);
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
