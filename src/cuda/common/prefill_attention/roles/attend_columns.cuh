// SPDX-License-Identifier: Apache-2.0
// Consumer warpgroups that share 64 query rows, each with its columns of q, K, V and the accumulator: for heads of
// which the accumulator of 64 rows does not fit a warpgroup's registers.
//
//   scores over the own columns ─► shared memory ─► both add up both parts: the same bits, weights and maxima
//                                                   each sums its own columns of V, and stores them
//
//   step: S(i + 1) over the own columns │ P(i) · V(i), under which the parts are exchanged and the softmax runs
//
// K and V have one stage each, so a block is freed as soon as its products have ended, and the next one is awaited
// when it is needed. The parts have one buffer: two named barriers of all consumers, before it is written (everyone
// has read the last) and before it is read.
#pragma once

#include <cutlass/arch/barrier.h>

#include "cuda/common/prefill_attention/epilogue.cuh"
#include "cuda/common/prefill_attention/products.cuh"
#include "cuda/common/prefill_attention/query_rows.cuh"
#include "cuda/common/prefill_attention/roles/load.cuh"
#include "cuda/common/prefill_attention/shared.cuh"

namespace quire::cuda {

template <PrefillConfig kConfig> class AttendColumns {
 public:
  using Shared = PrefillShared<kConfig>;
  static constexpr int kGroups = kConfig.column_groups;
  static constexpr int kValueColumns = kConfig.value_dim / kGroups;
  static constexpr DType kProduct = kConfig.product_dtype();
  static_assert(kGroups == kConfig.consumers && kGroups > 1);
  static_assert(!kConfig.converts() && !kConfig.has_fp8_products());
  static_assert(kConfig.ends == Ends::finished && !kConfig.cuts_tiles() && kConfig.q_parts == 1);

  using Block = float[kConfig.block_keys / 2];
  using Weights = std::uint32_t[kConfig.block_keys / 4];
  using Sums = float[kValueColumns / 2];

  __device__ AttendColumns(const PrefillParams& params, Shared& shared, int consumer)
      : params_(params),
        shared_(shared),
        group_(consumer),
        row_(rank_in_cluster<kConfig.cluster>() * kConfig.cta_rows()) {}

  __device__ void run() {
    for (;;) {
      // It stays in shared memory: registers are few beside the sums.
      const PrefillTile& tile = shared_.look_at_tile(tile_at_);
      if (tile.sequence < 0) return;
      shared_.q_rings[0].wait_full(q_at_);
      attend(tile);
      q_at_.advance();
      shared_.pass_tile(tile_at_);
    }
  }

 private:
  static constexpr int kConsumerThreads = 128 * kConfig.consumers;
  static constexpr int kKeySwizzleColumns = kConfig.key_swizzle_columns() / kGroups;
  static constexpr int kValueSwizzleColumns = kConfig.value_swizzle_columns() / kGroups;

  __device__ int thread_row() const {
    return row_ + static_cast<int>(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
  }
  __device__ std::byte* values() {
    return &shared_.values[value_at_.stage]
                          [group_ * kValueSwizzleColumns * Shared::kSwizzleColumnBytes];
  }
  __device__ float row_to_log2() const {
    return kConfig.scores == Scores::modified ? 1.0F : params_.scores.scale * kLog2e;
  }
  __device__ static int first_key(const PrefillTile& tile, int block) {
    return tile.first_key + block * kConfig.block_keys;
  }

  __device__ void attend(const PrefillTile& tile) {
    Block scores;
    Weights weights;
    Sums sums;
    LazySoftmax softmax;
    all_see_ = seen_by_all<kConfig>(params_, tile);
    starts_sum_ = true;
    int block = tile.end_block - 1;
    zero_from_ = tile.end_key - first_key(tile, block);
    const float to_log2[2] = {row_to_log2(), row_to_log2()};
    float keep[2];
    start_scores(scores);
    end_scores(tile, block, scores);
    add_parts(scores);
    prepare(tile, block, scores);
    softmax.rise<kProduct>(scores, to_log2, keep);
    weigh(softmax, scores, to_log2, weights);
    for (--block; block >= tile.first_block; --block) {
      step(tile, block, softmax, scores, weights, sums);
    }
    await_values();
    start_sum(weights, sums);
    cute::warpgroup_wait<0>();
    pin(sums);
    free_values();
    store_rows<kConfig>(params_, tile, thread_row(), softmax, to_log2, sums,
                        group_ * kValueColumns);
  }

  // Scores of `block`, and the sum over the one before it.
  __device__ void step(const PrefillTile& tile, int block, LazySoftmax& softmax, Block& scores,
                       Weights& weights, Sums& sums) {
    start_scores(scores);
    await_values();
    end_scores(tile, block, scores);
    start_sum(weights, sums);
    add_parts(scores);
    prepare(tile, block, scores);
    const float to_log2[2] = {row_to_log2(), row_to_log2()};
    float keep[2];
    const bool rises = softmax.rise<kProduct>(scores, to_log2, keep);
    StepProducts<kConfig>::keep_sums(sums, rises, keep);
    pin(weights);
    free_values();
    starts_sum_ = false;
    weigh(softmax, scores, to_log2, weights);
  }

  // Over the warpgroup's columns.
  __device__ void start_scores(Block& scores) {
    using Op = Wgmma<kConfig.score_dtype(), kConfig.block_keys>;
    constexpr int kQueryStep = Shared::kQuerySwizzleColumnBytes;
    constexpr int kKeyStep = Shared::kSwizzleColumnBytes;
    shared_.key_ring.wait_full(key_at_);
    holes_ = shared_.read_holes(key_at_.stage);
    const int first = group_ * kKeySwizzleColumns;
    // With the CTA's rank: these instructions read no distance between swizzle columns, and taking it off spills.
    const std::uint64_t a = tile_descriptor(&shared_.q[q_at_.stage][first * kQueryStep]);
    const std::uint64_t b = tile_descriptor(&shared_.keys[key_at_.stage][first * kKeyStep]);
    pin(scores);
    cute::warpgroup_arrive();
#pragma unroll
    for (int i = 0; i < kKeySwizzleColumns; ++i) {
      multiply_rows<Op>(a + i * (kQueryStep >> 4), b + i * (kKeyStep >> 4), scores, i == 0);
    }
    cute::warpgroup_commit_batch();
    holes_ = Shared::tell_holes(holes_);
  }

  // Awaits them, frees what they were made of, and gives them to the other warpgroups.
  __device__ void end_scores(const PrefillTile& tile, int block, Block& scores) {
    cute::warpgroup_wait<0>();
    pin(scores);
    shared_.free_keys(key_at_.stage);
    key_at_.advance();
    sync_consumers(kPartsRead);
    if (block == tile.first_block && threadIdx.x % 128 == 0) {
      shared_.q_rings[0].empty[q_at_.stage].arrive();  // the tile's last scores are there
    }
    auto& parts = shared_.partial_scores[group_];
#pragma unroll
    for (int i = 0; i < kConfig.block_keys / 8; ++i) {
      parts[i][threadIdx.x % 128] =
          make_float4(scores[4 * i], scores[4 * i + 1], scores[4 * i + 2], scores[4 * i + 3]);
    }
  }

  // Of two warpgroups: either order of a sum gives the same bits.
  static_assert(kGroups == 2);
  __device__ void add_parts(Block& scores) {
    sync_consumers(kPartsWritten);
    const auto& parts = shared_.partial_scores[1 - group_];
#pragma unroll
    for (int i = 0; i < kConfig.block_keys / 8; ++i) {
      const float4 part = parts[i][threadIdx.x % 128];
      scores[4 * i] += part.x;
      scores[4 * i + 1] += part.y;
      scores[4 * i + 2] += part.z;
      scores[4 * i + 3] += part.w;
    }
  }

  // From products to scores that the softmax may take.
  __device__ void prepare(const PrefillTile& tile, int block, Block& scores) const {
    const int first = first_key(tile, block);
    if constexpr (kConfig.scores == Scores::modified) {
      constexpr float kUndivided[2] = {1.0F, 1.0F};
      modify(params_, tile, thread_row(), first, kUndivided, scores);
    }
    if (holes_ != 0 || first < all_see_.first || first + kConfig.block_keys > all_see_.end) {
      hide<kConfig>(params_, tile, thread_row(), first, holes_, scores);
    }
  }

  __device__ static void weigh(LazySoftmax& softmax, Block& scores, const float (&to_log2)[2],
                               Weights& weights) {
    const float offset[2] = {softmax.offset<kProduct>(to_log2[0], 0),
                             softmax.offset<kProduct>(to_log2[1], 1)};
    softmax.weigh<kProduct>(scores, to_log2, offset, weights);
  }

  // A tile's first block may be the last of its keys: what stands behind them becomes zeros.
  __device__ void await_values() {
    shared_.value_ring.wait_full(value_at_);
    if (zero_from_ < kConfig.block_keys) {
      zero_values<kConfig>(values(), zero_from_);
      cutlass::arch::fence_view_async_shared();
      cutlass::arch::NamedBarrier::sync(128, kWarpgroup + static_cast<unsigned>(group_));
    }
    zero_from_ = kConfig.block_keys;
  }

  __device__ void start_sum(Weights& weights, Sums& sums) {
    using Op = RegisterWgmma<kProduct, kValueColumns>;
    pin(sums);
    pin(weights);
    cute::warpgroup_arrive();
    const std::uint64_t b =
        without_rank(transposed_descriptor(values(), Shared::kSwizzleColumnBytes));
    multiply_registers<Op>(weights, b, sums, starts_sum_);
    cute::warpgroup_commit_batch();
  }

  __device__ void free_values() {
    Shared::free_stage(shared_.value_ring.empty[value_at_.stage], threadIdx.x % 128);
    value_at_.advance();
  }

  enum Barrier : unsigned { kPartsRead, kPartsWritten, kWarpgroup };  // the last: one each
  __device__ static void sync_consumers(Barrier barrier) {
    cutlass::arch::NamedBarrier::sync(kConsumerThreads, barrier);
  }

  const PrefillParams& params_;
  Shared& shared_;
  const int group_;                     // of columns
  const int row_;                       // the CTA's first, in a tile
  int zero_from_ = kConfig.block_keys;  // first row of the next V block behind the sequence's end
  bool starts_sum_ = true;
  std::uint32_t holes_ = 0;  // in the keys of the scores
  KeyInterval all_see_{};
  RingPosition<kConfig.key_stages> key_at_;
  RingPosition<kConfig.value_stages> value_at_;
  RingPosition<kConfig.q_buffers> q_at_;
  RingPosition<Shared::kTileRing> tile_at_;
};

}  // namespace quire::cuda
