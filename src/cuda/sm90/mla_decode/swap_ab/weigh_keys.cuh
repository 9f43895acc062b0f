// SPDX-License-Identifier: Apache-2.0
// Two warpgroups that take tiles in turn: scores, softmax, weights into shared memory.
//
// What a thread has of a tile: shared.cuh. What exponents are relative to: running_max.cuh.
#pragma once

#include <cute/arch/copy_sm90.hpp>

#include "cuda/common/thread/warp_reduce.cuh"
#include "cuda/sm90/mla_decode/latent/shared.cuh"
#include "cuda/sm90/mla_decode/swap_ab/load_units.cuh"
#include "cuda/sm90/mla_decode/swap_ab/running_max.cuh"

namespace quire::cuda::sm90::mla_decode {

template <SwapAbConfig kConfig> class WeighKeys {
 public:
  // `group`: of the two.
  __device__ WeighKeys(const MlaDecodeParams& params, SwapAbShared<kConfig>& shared, int group)
      : params_(params.attend),
        format_(params.format),
        shared_(shared),
        group_(group),
        warp_(static_cast<int>(threadIdx.x % 128 / 32)),
        at_(group, warp_),
        products_(params.format, shared),
        refs_(params.attend, shared, group, warp_) {}

  __device__ void run() {
    const LoadTileQueries<kConfig> queries(params_, shared_, format_.has_fp8_rope);
    for (RingPosition<SwapAbConfig::kWorkTiles> work_tile_at;; work_tile_at.advance()) {
      shared_.work_tile_ring.wait_full(work_tile_at);
      const LatentWorkTile& work_tile = shared_.work_tiles[work_tile_at.stage];
      if (work_tile.tiles == 0) return;
      sync_scores();  // the products with the queries before these are done
      queries.load(work_tile, SwapAbConfig::kGroupWarps * group_ + warp_, shared_.query_factors);
      sync_scores();
      attend(work_tile);
      leave_stats();
      shared_.work_tile_ring.empty[work_tile_at.stage].arrive();
    }
  }

 private:
  using Rows = ThreadRows<kConfig>;
  using UnitOf = UnitRows<kConfig.kind>;
  using Scales = KeyScales<kConfig>;
  static constexpr int kScores = Rows::kScores;
  static constexpr int kThreadRows = Rows::kThreadRows;

  __device__ static int lane() { return Rows::lane(); }
  __device__ static int row(int index) { return Rows::row(index); }
  __device__ static int key() { return Rows::key(); }
  __device__ void sync_scores() {
    shared_.queries.arrive();
    shared_.queries.wait(queries_phase_);
    queries_phase_ ^= 1;
  }

  __device__ void attend(const LatentWorkTile& work_tile) {
    const LatentRowMask row_mask(params_, work_tile, kConfig.rows);
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) sums_[i] = 0.0F;
    refs_.begin_work_tile();
    const int tiles = work_tile.tiles;
    const KeyInterval whole = row_mask.whole_tiles();
    for (int tile = first_; tile < tiles; tile += SwapAbConfig::kGroups) {
      weigh(row_mask, tile, tile >= whole.first && tile < whole.end);
      at_.advance(SwapAbConfig::kGroups * SwapAbConfig::kTileUnits);
      turn_ ^= 1;
    }
    first_ = (first_ + tiles) & 1;
  }

  // `tile`: of the work tile. `is_whole`: every row sees all of its keys.
  __device__ void weigh(const LatentRowMask& row_mask, int tile, bool is_whole) {
    shared_.full[at_.place].wait(at_.phase);
    typename ScoreKeys<kConfig>::Raw raw;
    products_.begin(at_.place, raw);
    const int live = shared_.live[at_.place];
    const Scales scales = scales_at(at_.place, live);
    float scores[kScores];
    products_.score(at_.place, raw, scales, scores);
    if (!is_whole || live < SwapAbConfig::kUnitKeys) {
      row_mask.hide_across(tile, valid_keys(live), SwapAbConfig::kUnitKeys * warp_ + key(), scores);
    }
    float keep[kThreadRows];
    refs_.follow(tile == 0, turn_, scores, scales, sums_, keep);
    exponentiate(scores);
    shared_.weights_empty[group_].wait(turn_ ^ 1);
    leave_factors(keep);
    store_weights(scores, scales);
    if (live < SwapAbConfig::kUnitKeys) zero_from(live, at_.place);
    cutlass::arch::fence_view_async_shared();
    shared_.weights_full[group_].arrive();
  }

  // A bit per key of the tile; other warps' keys are theirs to hide.
  __device__ std::uint64_t valid_keys(int live) const {
    const std::uint64_t missing = 0xffffU & ~((1U << live) - 1);
    return ~(missing << SwapAbConfig::kUnitKeys * warp_);
  }

  // Zeros, where there is no key: what stands in the place of its scales may be anything.
  __device__ Scales scales_at(int place, int live) const {
    Scales scales;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (kConfig.kind == SwapAbKind::fp8_block) {
        const auto four = *reinterpret_cast<const float4*>(
            shared_.units[place] + UnitOf::offset(key() + 8 * i, UnitOf::kScalesChunk));
        scales.of[i][0] = four.x;
        scales.of[i][1] = four.y;
        scales.of[i][2] = four.z;
        scales.of[i][3] = four.w;
      } else {
        scales.of[i][0] =
            format_.token_scales != nullptr ? shared_.scales[place][key() + 8 * i] : 1.0F;
      }
#pragma unroll
      for (float& scale : scales.of[i]) scale = key() + 8 * i < live ? scale : 0.0F;
    }
    return scales;
  }

  __device__ void exponentiate(float (&scores)[kScores]) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int row = Rows::row_of(i);
      scores[i] = exp2_approx(fmaf(scores[i], refs_.factor(row), -refs_.offset(row)));
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
  __device__ void store_weights(const float (&weights)[kScores], const Scales& scales) {
    const float lift = kConfig.is_fp8() ? ScalePower::lift(refs_.scale_power()) : 1.0F;
#pragma unroll
    for (int group = 0; group < kConfig.scale_groups(); ++group) {
      float scaled[kScores];
#pragma unroll
      for (int i = 0; i < kScores; ++i) {
        const float scale = kConfig.is_fp8() ? scales.of[i / 2 % 2][group] * lift : 1.0F;
        scaled[i] = weights[i] * scale;
      }
      store_swizzle_column(shared_.weights[group_][group], scaled);
    }
  }
  __device__ void store_swizzle_column(std::byte* swizzle_column,
                                       const float (&weights)[kScores]) const {
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
      auto& target = reinterpret_cast<cute::uint128_t&>(
          swizzle_column[swizzle_column_offset(place, 2 * warp_ + lane() / 8 % 2)]);
      cute::SM90_U16x8_STSM_T::copy(words[0], words[1], words[2], words[3], target);
    }
  }

  // Rows behind the sequence's end, in its last page, may hold anything, and 0 · NaN is NaN.
  __device__ void zero_from(int row, int place) {
    constexpr int kChunks = LatentConfig::kLatent * UnitOf::kColumnBytes / 16;
#pragma unroll 1
    for (; row < SwapAbConfig::kUnitKeys; ++row) {
#pragma unroll 1
      for (int chunk = lane(); chunk < kChunks; chunk += 32) {
        *reinterpret_cast<uint4*>(shared_.units[place] + UnitOf::offset(row, chunk)) = uint4{};
      }
    }
  }

  // What this group has of the work tile's sums.
  __device__ void leave_stats() {
    shared_.stats_empty.wait(stats_phase_ ^ 1);
    stats_phase_ ^= 1;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const float sum = column_sum(sums_[i]);
      if (lane() >= 4) continue;
      shared_.stats_sums[group_][warp_][row(i)] = sum;
      if (warp_ == 0) shared_.stats_refs[group_][row(i)] = refs_.of(i);
    }
    if (warp_ == 0 && lane() == 0) shared_.stats_powers[group_] = refs_.scale_power();
    shared_.stats_full.arrive();
  }

  const LatentParams& params_;
  const LatentRowFormat& format_;
  SwapAbShared<kConfig>& shared_;
  const int group_;
  const int warp_;          // of the group
  UnitPlace<kConfig> at_;   // this warp's unit of the group's next tile
  std::uint32_t turn_ = 0;  // changes with each of the group's tiles
  int first_ = group_;      // of the next work tile's tiles, the group's first
  ScoreKeys<kConfig> products_;
  RunningMax<kConfig> refs_;
  float sums_[kThreadRows];  // of this thread's weights, relative to the references
  std::uint32_t stats_phase_ = 0;
  std::uint32_t queries_phase_ = 0;
};

}  // namespace quire::cuda::sm90::mla_decode
