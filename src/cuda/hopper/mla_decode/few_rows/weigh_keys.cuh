// SPDX-License-Identifier: Apache-2.0
// Two warpgroups that take tiles in turn: scores, softmax, weights into shared memory.
//
// A thread has keys lane / 4 and lane / 4 + 8 of its warp's unit, and query rows 8j + 2 (lane % 4) + e.
// Exponents are relative to a reference of the row, which follows its maximum only where that rises by
// more than kSlack powers of two: the values' sums are then seldom scaled again.
#pragma once

#include <cute/arch/copy_sm90.hpp>

#include "cuda/hopper/latent_attention/row_sight.cuh"
#include "cuda/hopper/latent_attention/row_stats.cuh"
#include "cuda/hopper/mla_decode/few_rows/load_tile_queries.cuh"
#include "cuda/hopper/mla_decode/few_rows/scale_power.cuh"
#include "cuda/hopper/mla_decode/few_rows/score_keys.cuh"

namespace quire::cuda::hopper {

template <FewRowsConfig kConfig> class WeighKeys {
 public:
  // `group`: of the two.
  __device__ WeighKeys(const MlaDecodeParams& params, FewRowsShared<kConfig>& shared, int group)
      : params_(params.attend),
        format_(params.format),
        shared_(shared),
        group_(group),
        warp_(static_cast<int>(threadIdx.x % 128 / 32)),
        products_(params.format, shared) {}

  __device__ void run() {
    const LoadTileQueries<kConfig> queries(params_, shared_, format_.has_fp8_rope);
    for (RingPosition<FewRowsConfig::kItems> item_at;; item_at.advance()) {
      shared_.item_ring.wait_full(item_at);
      const LatentItem& item = shared_.items[item_at.stage];
      if (item.tiles == 0) return;
      sync_scores();  // the products with the queries before these are done
      queries.load(item, FewRowsConfig::kGroupWarps * group_ + warp_);
      sync_scores();
      attend(item);
      leave_stats();
      arrive_by_warp(shared_.item_ring.empty[item_at.stage]);
    }
  }

 private:
  static constexpr int kScores = kConfig.rows / 2;      // of a thread
  static constexpr int kThreadRows = kConfig.rows / 4;  // row 2j + e is 8j + 2 (lane % 4) + e
  static constexpr float kSlack = kConfig.is_fp8() ? ScalePower::kSlack : 8.0F;

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static constexpr int row_of(int score) { return score / 4 * 2 + score % 2; }
  __device__ static int row(int index) { return index / 2 * 8 + lane() % 4 * 2 + index % 2; }
  // Of the unit, the thread's first; the second stands 8 below it.
  __device__ static int key() { return lane() / 4; }
  __device__ void sync_group() const {
    cutlass::arch::NamedBarrier::sync(128, static_cast<std::uint32_t>(1 + group_));
  }
  __device__ static void sync_scores() {
    cutlass::arch::NamedBarrier::sync(32 * FewRowsConfig::kWarps, 0);
  }

  __device__ void attend(const LatentItem& item) {
    const RowSight sight(params_, item, kConfig.rows);
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      refs_[i] = -INFINITY;
      sums_[i] = 0.0F;
    }
    scale_power_ = 0;
    for (int tile = (tile_ ^ group_) & 1; tile < item.tiles; tile += FewRowsConfig::kGroups) {
      weigh(sight, tile, tile_ + tile);
    }
    tile_ += item.tiles;
  }

  // `tile`: of the item; `number`: of the block.
  __device__ void weigh(const RowSight& sight, int tile, int number) {
    const UnitPlace<kConfig> at(number, warp_);
    shared_.full[at.place].wait(at.phase);
    const int live = shared_.live[at.place];
    const KeyScales scales = scales_at(at.place, live);
    float scores[kScores];
    products_.score(at.place, scales, scores);
    sight.hide_across(tile, valid_keys(live), FewRowsConfig::kUnitKeys * warp_ + key(), scores);
    if constexpr (kConfig.is_fp8()) leave_scale_top(scales);
    float keep[kThreadRows];
    follow_tops(tile == 0, number, scores, keep);
    exponentiate(scores);
    shared_.weights_empty[group_].wait(group_phase(number) ^ 1);
    leave_factors(keep);
    store_weights(scores, scales_at(at.place, live));  // again: registers are few
    if (live < FewRowsConfig::kUnitKeys) zero_from(live, at.place);
    cutlass::arch::fence_view_async_shared();
    shared_.weights_full[group_].arrive();
  }

  // A bit per key of the tile; other warps' keys are theirs to hide.
  __device__ std::uint64_t valid_keys(int live) const {
    const std::uint64_t missing = 0xffffU & ~((1U << live) - 1);
    return ~(missing << FewRowsConfig::kUnitKeys * warp_);
  }

  // Zeros, where there is no key: what stands in the place of its scales may be anything.
  __device__ KeyScales scales_at(int place, int live) const {
    KeyScales scales;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float4 four{1.0F, 1.0F, 1.0F, 1.0F};
      scales.rope[i] = 1.0F;
      if (kConfig.is_fp8() && format_.row_scales_offset_bytes >= 0) {
        four = *reinterpret_cast<const float4*>(shared_.units[place][key() + 8 * i] +
                                                format_.row_scales_offset_bytes);
      } else if (kConfig.is_fp8() && format_.token_scales != nullptr) {
        const float one = shared_.scales[place][key() + 8 * i];
        scales.rope[i] = one;
        four = {one, one, one, one};
      }
      if (key() + 8 * i >= live) four = {};
      scales.latent[i][0] = four.x;
      scales.latent[i][1] = four.y;
      scales.latent[i][2] = four.z;
      scales.latent[i][3] = four.w;
    }
    return scales;
  }

  // References from the other group, which had the tile before, and on to it. `keep`: what the sums of
  // the item's tiles before are worth now.
  __device__ void follow_tops(bool is_first, int number, const float (&scores)[kScores],
                              float (&keep)[kThreadRows]) {
    leave_tops(scores);
    sync_group();
    const int other = group_ ^ 1;
    if (number > 0) shared_.refs_full[other].wait(group_phase(number - 1));
    const float scale_keep = follow_scales(is_first);
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const float before = is_first ? -INFINITY : shared_.refs[other][row(i)];
      const float top = highest(i);
      const float now = top > before + kSlack || before == -INFINITY ? top : before;
      keep[i] = before == -INFINITY ? 1.0F : exp2_approx(before - now) * scale_keep;
      sums_[i] *= refs_[i] == -INFINITY ? 1.0F : exp2_approx(refs_[i] - now);
      refs_[i] = now;
      if (warp_ == 0 && lane() < 4) shared_.refs[group_][row(i)] = now;
    }
    shared_.refs_full[group_].arrive();
  }
  // Of this warp's keys. Positive numbers are in the order of their bits.
  __device__ void leave_scale_top(const KeyScales& scales) {
    float top = 0.0F;
#pragma unroll
    for (int group = 0; group < FewRowsConfig::kScaleGroups; ++group) {
      top = fmaxf(top, fmaxf(fabsf(scales.latent[0][group]), fabsf(scales.latent[1][group])));
    }
    const std::uint32_t bits = __reduce_max_sync(0xffffffff, __float_as_uint(top));
    if (lane() == 0) shared_.scale_tops[group_][warp_] = bits;
  }
  // What the sums so far are worth relative to the tile's power of scales.
  __device__ float follow_scales(bool is_first) {
    if constexpr (!kConfig.is_fp8()) return 1.0F;
    const uint4 tops = *reinterpret_cast<const uint4*>(shared_.scale_tops[group_]);
    const int before = is_first ? 0 : shared_.scale_powers[group_ ^ 1];
    scale_power_ = ScalePower::follow(before, max(max(tops.x, tops.y), max(tops.z, tops.w)));
    if (warp_ == 0 && lane() == 0) shared_.scale_powers[group_] = scale_power_;
    return before == 0 ? 1.0F : ScalePower::keep(before, scale_power_);
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
  // Of a row in this tile, in powers of two.
  __device__ float highest(int index) const {
    float top = -INFINITY;
#pragma unroll
    for (int warp = 0; warp < FewRowsConfig::kGroupWarps; ++warp) {
      top = fmaxf(top, shared_.tops[group_][warp][row(index)]);
    }
    return top == -INFINITY ? top : top * shared_.query_factors[row(index)];
  }

  __device__ void exponentiate(float (&scores)[kScores]) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const float ref = refs_[row_of(i)];
      scores[i] = exp2_approx(
          fmaf(scores[i], shared_.query_factors[row(row_of(i))], ref == -INFINITY ? 0.0F : -ref));
    }
#pragma unroll
    for (int i = 0; i < kScores; ++i) sums_[row_of(i)] += scores[i];
  }

  __device__ void leave_factors(const float (&keep)[kThreadRows]) {
    if (warp_ != 0 || lane() >= 4) return;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) shared_.factors[group_][row(i)] = keep[i];
  }

  // Times the scales of the keys.
  __device__ void store_weights(const float (&weights)[kScores], const KeyScales& scales) {
    const bool has_groups = kConfig.is_fp8() && format_.row_scales_offset_bytes >= 0;
    const float lift = kConfig.is_fp8() ? ScalePower::lift(scale_power_) : 1.0F;
#pragma unroll
    for (int group = 0; group < kConfig.weight_copies(); ++group) {
      if (group > 0 && !has_groups) break;
      float scaled[kScores];
#pragma unroll
      for (int i = 0; i < kScores; ++i) {
        const float scale = kConfig.is_fp8() ? scales.latent[i / 2 % 2][group] * lift : 1.0F;
        scaled[i] = weights[i] * scale;
      }
      store_slab(shared_.weights[group_][group], scaled);
    }
  }
  __device__ void store_slab(std::byte* slab, const float (&weights)[kScores]) const {
#pragma unroll
    for (int first = 0; first < kScores; first += 8) {
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[i] = pack_pair < kConfig.is_fp8()
                       ? DType::f16
                       : DType::bf16 > (weights[first + 2 * i], weights[first + 2 * i + 1]);
      }
      // Word 2j + i: rows 8j … of keys 8i …; stored across, so that a row's keys stand together.
      const int place = first * 2 + lane() / 16 * 8 + lane() % 8;
      auto& target =
          reinterpret_cast<cute::uint128_t&>(slab[slab_offset(place, 2 * warp_ + lane() / 8 % 2)]);
      cute::SM90_U16x8_STSM_T::copy(words[0], words[1], words[2], words[3], target);
    }
  }

  // Rows behind the sequence's end, in its last page, may hold anything, and 0 · NaN is NaN.
  __device__ void zero_from(int row, int place) {
    constexpr int kChunks = LatentConfig::kLatent * kConfig.column_bytes() / 16;
#pragma unroll 1
    for (; row < FewRowsConfig::kUnitKeys; ++row) {
      auto* chunks = reinterpret_cast<uint4*>(shared_.units[place][row]);
#pragma unroll 1
      for (int chunk = lane(); chunk < kChunks; chunk += 32) chunks[chunk] = uint4{};
    }
  }

  // What this group has of the item's sums.
  __device__ void leave_stats() {
    shared_.stats_empty.wait(stats_phase_ ^ 1);
    stats_phase_ ^= 1;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      float sum = sums_[i];
#pragma unroll
      for (int distance = 4; distance < 32; distance *= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, distance);
      }
      if (lane() >= 4) continue;
      shared_.stats_sums[group_][warp_][row(i)] = sum;
      if (warp_ == 0) shared_.stats_refs[group_][row(i)] = refs_[i];
    }
    if (warp_ == 0 && lane() == 0) shared_.stats_powers[group_] = scale_power_;
    shared_.stats_full.arrive();
  }

  const LatentParams& params_;
  const LatentRowFormat& format_;
  FewRowsShared<kConfig>& shared_;
  const int group_;
  const int warp_;  // of the group
  ScoreKeys<kConfig> products_;
  float refs_[kThreadRows];  // of the thread's rows, when this group last had a tile
  float sums_[kThreadRows];  // of this thread's weights, relative to them
  int scale_power_ = 0;      // what its scales are relative to
  int tile_ = 0;             // the item's first
  std::uint32_t stats_phase_ = 0;
};

}  // namespace quire::cuda::hopper
