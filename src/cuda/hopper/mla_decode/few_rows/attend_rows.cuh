// SPDX-License-Identifier: Apache-2.0
// A warpgroup with its tiles: scores, softmax and values, item by item.
//
// A thread has keys 16 · warp + lane / 4 and the one 8 below it of the scores, value columns in the same
// way of the sums, and the same query rows 8j + 2 (lane % 4) + e of both: what is known of a row is in
// the registers of those who need it.
#pragma once

#include <cute/arch/copy_sm90.hpp>

#include "cuda/hopper/latent_attention/row_sight.cuh"
#include "cuda/hopper/mla_decode/few_rows/finish_rows.cuh"
#include "cuda/hopper/mla_decode/few_rows/load_tile_queries.cuh"
#include "cuda/hopper/mla_decode/few_rows/multiply_bf16.cuh"
#include "cuda/hopper/mla_decode/few_rows/multiply_fp8.cuh"

namespace quire::cuda::hopper {

template <FewRowsConfig kConfig> class AttendRows {
 public:
  __device__ AttendRows(const MlaDecodeParams& params, FewRowsShared<kConfig>& shared, int group)
      : params_(params.attend),
        format_(params.format),
        shared_(shared),
        group_(group),
        warp_(static_cast<int>(threadIdx.x % 128 / 32)),
        first_row_(kConfig.row_groups > 1 ? group * kRows : 0),
        products_(params.format, shared, group) {}

  __device__ void run() {
    const LoadTileQueries<kConfig> queries(params_, shared_, format_.has_fp8_rope);
    for (RingPosition<FewRowsConfig::kItems> item_at;; item_at.advance()) {
      shared_.item_ring.wait_full(item_at);
      const LatentItem& item = shared_.items[item_at.stage];
      if (item.tiles == 0) return;
      sync_groups();  // the products with the queries before these are done
      queries.load(item, FewRowsConfig::kGroupWarps * group_ + warp_);
      sync_groups();
      attend(item);
      FinishRows<kConfig>(params_, shared_, item, group_)
          .finish(first_tile() == 0, {.refs = refs_, .sums = weight_sums_}, sums_);
      tile_ += item.tiles;
      arrive_by_warp(shared_.item_ring.empty[item_at.stage]);
    }
  }

 private:
  static constexpr int kRows = kConfig.group_rows;
  static constexpr int kScores = kRows / 2;      // of a thread
  static constexpr int kThreadRows = kRows / 4;  // of q: row 2j + e is 8j + 2 (lane % 4) + e
  static constexpr float kSlack = 8.0F;

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static constexpr int row_of(int score) { return score / 4 * 2 + score % 2; }
  __device__ int row(int index) const { return index / 2 * 8 + lane() % 4 * 2 + index % 2; }
  __device__ int key() const { return 16 * warp_ + lane() / 4; }
  __device__ void sync_group() const {
    cutlass::arch::NamedBarrier::sync(128, static_cast<std::uint32_t>(1 + group_));
  }
  __device__ static void sync_groups() {
    cutlass::arch::NamedBarrier::sync(128 * kConfig.groups(), 0);
  }
  // Of the item, this group's.
  __device__ int first_tile() const { return kConfig.tile_groups > 1 ? (tile_ ^ group_) & 1 : 0; }

  __device__ void attend(const LatentItem& item) {
    const RowSight sight(params_, item, kConfig.rows());
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      refs_[i] = -INFINITY;
      weight_sums_[i] = 0.0F;
      factors_[i] = shared_.query_factors[first_row_ + row(i)];
    }
#pragma unroll
    for (int block = 0; block < FewRowsConfig::kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < kScores; ++i) sums_[block][i] = 0.0F;
    }
    for (int tile = first_tile(); tile < item.tiles; tile += kConfig.tile_groups) {
      attend_tile(sight, tile);
    }
  }

  // `tile`: of the item.
  __device__ void attend_tile(const RowSight& sight, int tile) {
    float scores[kScores];
    products_.score(tile_ + tile, scores);
    sight.hide_across(tile, products_.valid(), key(), first_row_, scores);
    follow_tops(scores);
    weigh(scores);
    // Rows behind the sequence's end, in its last page, may hold anything, and 0 · NaN is NaN.
    const int num_keys = sight.num_keys(tile);
    if (num_keys < FewRowsConfig::kKeys) products_.zero_from(num_keys);
    cutlass::arch::fence_view_async_shared();
    sync_group();
    products_.add_values(sums_);
  }

  // References of the rows: they follow the maxima only where those rise by more than kSlack powers of
  // two, so that the sums are seldom scaled again.
  __device__ void follow_tops(const float (&scores)[kScores]) {
    leave_tops(scores);
    sync_group();
    float keep[kThreadRows];
    bool rises = false;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      float top = -INFINITY;
#pragma unroll
      for (int warp = 0; warp < FewRowsConfig::kGroupWarps; ++warp) {
        top = fmaxf(top, shared_.tops[group_][warp][row(i)]);
      }
      top = top == -INFINITY ? top : top * factors_[i];
      const float before = refs_[i];
      if (top > before + kSlack || before == -INFINITY) refs_[i] = top;
      keep[i] = before == -INFINITY ? 1.0F : exp2_approx(before - refs_[i]);
      rises = rises || keep[i] != 1.0F;
    }
    if (__any_sync(0xffffffff, rises)) scale_sums(keep);
  }
  __device__ void leave_tops(const float (&scores)[kScores]) {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      float top = fmaxf(scores[i / 2 * 4 + i % 2], scores[i / 2 * 4 + i % 2 + 2]);
#pragma unroll
      for (int distance = 4; distance < 32; distance *= 2) {
        top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, distance));
      }
      if (lane() < 4) shared_.tops[group_][warp_][row(i)] = top;
    }
  }
  __device__ void scale_sums(const float (&keep)[kThreadRows]) {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) weight_sums_[i] *= keep[i];
#pragma unroll
    for (int block = 0; block < FewRowsConfig::kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < kScores; ++i) sums_[block][i] *= keep[row_of(i)];
    }
  }

  __device__ void weigh(float (&scores)[kScores]) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const float ref = refs_[row_of(i)];
      scores[i] = exp2_approx(fmaf(scores[i], factors_[row_of(i)], ref == -INFINITY ? 0.0F : -ref));
    }
#pragma unroll
    for (int i = 0; i < kScores; ++i) weight_sums_[row_of(i)] += scores[i];
    if constexpr (kConfig.latents == DType::bf16) {
      store_weights(0, scores);
    } else {
      const bool has_groups = format_.row_scales_offset_bytes >= 0;
#pragma unroll
      for (int group = 0; group < FewRowsConfig::kScaleGroups; ++group) {
        if (group == 0 || has_groups) store_scaled(group, scores);
      }
    }
  }
  // Weights of hidden keys are zeros whatever stands in the place of their scales.
  __device__ void store_scaled(int group, const float (&weights)[kScores]) {
    float scaled[kScores];
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const float scale = products_.scales().latent[i / 2 % 2][group];
      scaled[i] = weights[i] == 0.0F ? 0.0F : weights[i] * scale;
    }
    store_weights(group, scaled);
  }
  __device__ void store_weights(int group, const float (&weights)[kScores]) {
    std::byte* slab = shared_.weights[group_][group];
#pragma unroll
    for (int first = 0; first < kScores; first += 8) {
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[i] = bf16_pair(weights[first + 2 * i], weights[first + 2 * i + 1]);
      }
      // Word 2j + i: rows 8j … of keys 8i …; stored across, so that a row's keys stand together.
      const int place = first * 2 + lane() / 16 * 8 + lane() % 8;
      auto& target = reinterpret_cast<cute::uint128_t&>(
          slab[slab_offset(place, 2 * warp_ + lane() / 8 % 2)]);
      cute::SM90_U16x8_STSM_T::copy(words[0], words[1], words[2], words[3], target);
    }
  }

  const LatentParams& params_;
  const LatentRowFormat& format_;
  FewRowsShared<kConfig>& shared_;
  const int group_;
  const int warp_;       // of the group
  const int first_row_;  // of the item, the group's
  MultiplyTile<kConfig> products_;
  float factors_[kThreadRows];  // from a score to powers of two
  float refs_[kThreadRows];     // what exponents are relative to
  float weight_sums_[kThreadRows];  // of this thread's keys
  float sums_[FewRowsConfig::kBlocks][kScores];
  int tile_ = 0;  // the item's first
};

}  // namespace quire::cuda::hopper
