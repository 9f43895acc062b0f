// SPDX-License-Identifier: Apache-2.0
// Two warpgroups that take tiles in turn: scores, softmax, weights into shared memory.
//
// What a thread has of a tile: thread_rows.cuh. What exponents are relative to: follow_refs.cuh.
#pragma once

#include <cute/arch/copy_sm90.hpp>

#include "cuda/hopper/latent_attention/row_sight.cuh"
#include "cuda/hopper/latent_attention/row_stats.cuh"
#include "cuda/hopper/mla_decode/few_rows/follow_refs.cuh"
#include "cuda/hopper/mla_decode/few_rows/load_tile_queries.cuh"

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
        products_(params.format, shared),
        refs_(params.attend, shared, group, warp_) {}

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
      shared_.item_ring.empty[item_at.stage].arrive();
    }
  }

 private:
  using Rows = ThreadRows<kConfig>;
  using Op = Operands<kConfig.latents>;
  static constexpr int kScores = Rows::kScores;
  static constexpr int kThreadRows = Rows::kThreadRows;

  __device__ static int lane() { return Rows::lane(); }
  __device__ static int row(int index) { return Rows::row(index); }
  __device__ static int key() { return Rows::key(); }
  __device__ static void sync_scores() {
    cutlass::arch::NamedBarrier::sync(32 * FewRowsConfig::kWarps, 0);
  }

  __device__ void attend(const LatentItem& item) {
    const RowSight sight(params_, item, kConfig.rows);
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) sums_[i] = 0.0F;
    refs_.begin_item();
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
    float keep[kThreadRows];
    refs_.follow(tile == 0, number, scores, scales, sums_, keep);
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
        four = *reinterpret_cast<const float4*>(
            shared_.units[place] + Op::offset(key() + 8 * i, 0) + format_.row_scales_offset_bytes);
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

  __device__ void exponentiate(float (&scores)[kScores]) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const float ref = refs_.of(Rows::row_of(i));
      scores[i] = exp2_approx(fmaf(scores[i], shared_.query_factor(params_, row(Rows::row_of(i))),
                                   ref == -INFINITY ? 0.0F : -ref));
    }
#pragma unroll
    for (int i = 0; i < kScores; ++i) sums_[Rows::row_of(i)] += scores[i];
  }

  __device__ void leave_factors(const float (&keep)[kThreadRows]) {
    if (warp_ != 0 || lane() >= 4) return;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) shared_.factors[group_][row(i)] = keep[i];
  }

  // Times the scales of the keys.
  __device__ void store_weights(const float (&weights)[kScores], const KeyScales& scales) {
    const bool has_groups = kConfig.is_fp8() && format_.row_scales_offset_bytes >= 0;
    const float lift = kConfig.is_fp8() ? ScalePower::lift(refs_.scale_power()) : 1.0F;
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
#pragma unroll 1
      for (int chunk = lane(); chunk < kChunks; chunk += 32) {
        *reinterpret_cast<uint4*>(shared_.units[place] + Op::offset(row, chunk)) = uint4{};
      }
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
      if (warp_ == 0) shared_.stats_refs[group_][row(i)] = refs_.of(i);
    }
    if (warp_ == 0 && lane() == 0) shared_.stats_powers[group_] = refs_.scale_power();
    shared_.stats_full.arrive();
  }

  const LatentParams& params_;
  const LatentRowFormat& format_;
  FewRowsShared<kConfig>& shared_;
  const int group_;
  const int warp_;  // of the group
  ScoreKeys<kConfig> products_;
  FollowRefs<kConfig> refs_;
  float sums_[kThreadRows];  // of this thread's weights, relative to the references
  int tile_ = 0;             // the item's first
  std::uint32_t stats_phase_ = 0;
};

}  // namespace quire::cuda::hopper
