// SPDX-License-Identifier: Apache-2.0
// A consumer warpgroup: 64 query rows over their blocks of keys. The scores of the next block, be it
// the first of the next tile, are computed beside the sum over this one's values.
#pragma once

#include "cuda/hopper/flash_attention/prefill/products.cuh"
#include "cuda/hopper/flash_attention/prefill/store_rows.cuh"
#include "cuda/hopper/flash_attention/prefill/turns.cuh"

namespace quire::cuda::hopper {

template <PrefillConfig kConfig> class PrefillAttend {
 public:
  using Shared = PrefillShared<kConfig>;
  using Scores64 = float[kConfig.block_keys / 2];
  using Weights = std::uint32_t[kConfig.block_keys / 4];
  using Sums = float[kConfig.value_dim / 2];

  __device__ PrefillAttend(const PrefillParams& params, Shared& shared, int consumer)
      : params_(params), shared_(shared), turns_(consumer), row_(consumer * kWgmmaRows),
        to_log2_(kConfig.scores == Scores::scaled ? params.scores.scale * kLog2e : 1.0F) {}

  __device__ void run() {
    PrefillTile tile = next_tile();
    if (tile.sequence < 0) return;
    Scores64 scores;
    Weights weights;
    Sums sums;
    start(scores);
    while (tile.sequence >= 0) {
      const QueryRows<kConfig> rows(params_, tile, thread_row());
      RowSoftmax softmax;
      float keep[2];
      int block = tile.end_block - 1;
      zero_past_end_ = tile.num_keys() - block * kConfig.block_keys;
      prepare(tile, rows, block, scores);
      softmax.weigh(scores, to_log2_, keep);
      pack<kConfig.dtype>(scores, weights);
      for (--block; block >= tile.first_block; --block) {
        step(tile, rows, block, softmax, scores, weights, sums);
      }
      tile = finish(tile, rows, softmax, scores, weights, sums);
    }
  }

 private:
  __device__ int thread_row() const {
    return row_ + static_cast<int>(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
  }
  __device__ const std::byte* queries(int stage) const {
    return &shared_.q[stage][row_ * kRowBytes];
  }

  __device__ PrefillTile next_tile() {
    shared_.tile_ring.wait_full(tile_at_);
    const PrefillTile tile = shared_.tiles[tile_at_.stage];
    shared_.tile_ring.empty[tile_at_.stage].arrive();
    tile_at_.advance();
    return tile;
  }
  __device__ void release(int stage) {
    if (threadIdx.x % 128 == 0) shared_.ring.empty[stage].arrive();
  }

  // The very first scores, alone.
  __device__ void start(Scores64& scores) {
    shared_.q_ring.wait_full(q_at_);
    shared_.ring.wait_full(at_);
    pin(scores);
    cute::warpgroup_arrive();
    issue_scores<kConfig>(queries(q_at_.stage), shared_.blocks[at_.stage], scores);
    cute::warpgroup_commit_batch();
    cute::warpgroup_wait<0>();
    pin(scores);
    holes_ = shared_.holes[at_.stage];
    release(at_.stage);
    at_.advance();
  }

  // From products to scores that the softmax may take.
  __device__ void prepare(const PrefillTile& tile, const QueryRows<kConfig>& rows, int block,
                          Scores64& scores) const {
    const int first_key = block * kConfig.block_keys;
    if constexpr (kConfig.scores == Scores::modified) {
      rows.modify(params_, tile, first_key, scores);
    }
    if (holes_ != 0 || !rows.sees_all_of(first_key)) rows.hide(scores, first_key, holes_);
  }

  // Scores of `block` beside the sum over the one before it.
  __device__ void step(const PrefillTile& tile, const QueryRows<kConfig>& rows, int block,
                       RowSoftmax& softmax, Scores64& scores, Weights& weights, Sums& sums) {
    const int key_stage = at_.stage;
    shared_.ring.wait_full(at_);
    at_.advance();
    wait_values();
    const int value_stage = at_.stage;
    at_.advance();
    turns_.wait();
    issue(queries(q_at_.stage), key_stage, value_stage, scores, weights, sums);
    turns_.pass_on();
    cute::warpgroup_wait<1>();
    pin(scores);
    holes_ = shared_.holes[key_stage];
    release(key_stage);
    prepare(tile, rows, block, scores);
    float keep[2];
    softmax.weigh(scores, to_log2_, keep);
    cute::warpgroup_wait<0>();
    pin(sums);
    pin(weights);
    release(value_stage);
    starts_sum_ = false;
    scale_rows(sums, keep);
    pack<kConfig.dtype>(scores, weights);
  }

  __device__ void issue(const std::byte* q, int key_stage, int value_stage, Scores64& scores,
                        Weights& weights, Sums& sums) {
    pin(scores);
    pin(sums);
    pin(weights);
    cute::warpgroup_arrive();
    issue_scores<kConfig>(q, shared_.blocks[key_stage], scores);
    cute::warpgroup_commit_batch();
    issue_values<kConfig>(weights, shared_.blocks[value_stage], sums, starts_sum_);
    cute::warpgroup_commit_batch();
  }

  // Rows of V behind the sequence's end, in its last page, may hold anything, and 0 · NaN is NaN.
  // Every consumer writes the zeros for itself; the others write the same.
  __device__ void wait_values() {
    shared_.ring.wait_full(at_);
    if (zero_past_end_ < kConfig.block_keys) {
      constexpr int kChunks = kRowBytes / 16;
      const int first = zero_past_end_ * kChunks;
#pragma unroll 1
      for (int slab = 0; slab < kConfig.value_slabs(); ++slab) {
        auto* chunks =
            reinterpret_cast<uint4*>(&shared_.blocks[at_.stage][slab * Shared::kSlabBytes]);
#pragma unroll 1
        for (int at = first + static_cast<int>(threadIdx.x % 128);
             at < kConfig.block_keys * kChunks; at += 128) {
          chunks[at] = uint4{};
        }
      }
      cutlass::arch::fence_view_async_shared();
      cutlass::arch::NamedBarrier::sync(128, kConfig.consumers + row_ / kWgmmaRows);
    }
    zero_past_end_ = kConfig.block_keys;  // only a tile's first block is the last of its keys
  }

  // The sum over the tile's last block, beside the first scores of the next tile; then its rows are
  // stored. Where there is no next tile the scores are of whatever is there and nobody reads them.
  __device__ PrefillTile finish(const PrefillTile& tile, const QueryRows<kConfig>& rows,
                                const RowSoftmax& softmax, Scores64& scores, Weights& weights,
                                Sums& sums) {
    const int q_stage = q_at_.stage;
    const PrefillTile next = next_tile();
    q_at_.advance();
    int key_stage = at_.stage;
    if (next.sequence >= 0) {
      shared_.q_ring.wait_full(q_at_);
      shared_.ring.wait_full(at_);
      at_.advance();
    }
    wait_values();
    const int value_stage = at_.stage;
    at_.advance();
    turns_.wait();
    issue(queries(q_at_.stage), key_stage, value_stage, scores, weights, sums);
    turns_.pass_on();
    cute::warpgroup_wait<0>();
    pin(scores);
    pin(sums);
    pin(weights);
    if (next.sequence >= 0) {
      holes_ = shared_.holes[key_stage];
      release(key_stage);
    }
    release(value_stage);
    starts_sum_ = true;
    store_rows<kConfig>(params_, tile, rows, softmax, to_log2_, sums, shared_.q[q_stage], row_);
    cutlass::arch::fence_view_async_shared();
    shared_.q_ring.empty[q_stage].arrive();
    return next;
  }

  const PrefillParams& params_;
  Shared& shared_;
  Turns<kConfig.consumers> turns_;
  const int row_;  // the warpgroup's first, in a tile
  const float to_log2_;
  int zero_past_end_ = kConfig.block_keys;
  bool starts_sum_ = true;
  std::uint32_t holes_ = 0;
  RingPosition<kConfig.stages> at_;
  RingPosition<PrefillConfig::kQueryBuffers> q_at_;
  RingPosition<Shared::kTileRing> tile_at_;
};

}  // namespace quire::cuda::hopper
