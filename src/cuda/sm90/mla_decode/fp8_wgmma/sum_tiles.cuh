// SPDX-License-Identifier: Apache-2.0
// Two warpgroups: the softmax of half of the rows each, then sums of weights · V over half of the value columns, and the
// output.
#pragma once

#include "cuda/common/softmax/softmax.cuh"
#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/mla_decode/fp8_wgmma/shared.cuh"
#include "cuda/sm90/mla_decode/latent/shared.cuh"
#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/swap_ab/running_max.cuh"
#include "cuda/sm90/mla_decode/swap_ab/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

// The softmax of one row, by the four threads of a quad: each has keys 16m + 4c … + 3 of a tile, c its number in the
// quad.
//
// Exponents are relative to a reference, which follows the row's maximum only where that rises by more than kSlack powers
// of two, and the keys' factors to a power (swap_ab/running_max.cuh): sums of values are then seldom scaled again.

template <SwapAbConfig kConfig> class WeighRow {
 public:
  static constexpr int kFours = SwapAbConfig::kKeys / 16;
  using Scores = float4[kFours];

  // `row`: of the block.
  __device__ WeighRow(Fp8WgmmaShared<kConfig>& shared, int row) : shared_(shared), row_(row) {}

  // `first_row`: of the work tile, this block's.
  __device__ void begin(const LatentParams& params, const LatentWorkTile& work_tile,
                        int first_row) {
    const KeyInterval seen = params.visible.of(
        work_tile.position + (first_row + row_) / params.heads, work_tile.num_keys);
    seen_ = {.first = seen.first - work_tile.first_key, .end = seen.end - work_tile.first_key};
    ref_ = -INFINITY;
    sum_ = 0.0F;
    power_ = 0;
  }

  // The next tile's, from shared memory, in powers of two; keys that are not seen, or not there, are -inf. `parity`: of
  // the work tile.
  __device__ void fetch(unsigned parity, Scores& scores) {
    const float to_log2 = row_ < kConfig.rows ? shared_.query_factors[parity][row_] : 0.0F;
    const bool is_whole = seen_.first <= 0 && seen_.end >= SwapAbConfig::kKeys;
#pragma unroll
    for (int m = 0; m < kFours; ++m) {
      const int key = own_key(m);
      scores[m] = *reinterpret_cast<const float4*>(&shared_.scores[score_place(row_, key)]);
      scale(scores[m], to_log2);
      if (!is_whole) hide(key, scores[m]);
    }
    seen_ = {.first = seen_.first - SwapAbConfig::kKeys, .end = seen_.end - SwapAbConfig::kKeys};
    const int4 live = shared_.tile_live;
    if ((live.x & live.y & live.z & live.w) == SwapAbConfig::kUnitKeys) return;
    hide_missing({live.x, live.y, live.z, live.w}, scores);
  }

  // Weights of f16, times the keys' factors, to where the products read them and everybody has read scores. True: sums
  // of earlier tiles are worth what they were; otherwise `factors` says what the row's are.
  __device__ bool weigh(Scores& scores) {
    const bool stays = follow(scores);
    const float offset = ref_ == -INFINITY ? 0.0F : ref_;
    const float lift = ScalePower::lift(power_);
#pragma unroll
    for (int m = 0; m < kFours; ++m) {
      float4& four = scores[m];
      four = {exp2_approx(four.x - offset), exp2_approx(four.y - offset),
              exp2_approx(four.z - offset), exp2_approx(four.w - offset)};
      sum_ += (four.x + four.y) + (four.z + four.w);
      const float4 by = factors_of(m);
      const int key = own_key(m);
      *reinterpret_cast<uint2*>(shared_.weights() + swizzle_column_offset(row_, key / 8) +
                                key % 8 * 2) = {
          pack_pair<DType::f16>(four.x * (by.x * lift), four.y * (by.y * lift)),
          pack_pair<DType::f16>(four.z * (by.z * lift), four.w * (by.w * lift))};
    }
    return stays;
  }

  // When the work tile's tiles are done.
  __device__ void leave_stats() const {
    const float sum = quad_sum(sum_);
    if (threadIdx.x % 4 == 0) shared_.stats[row_] = {ref_, sum};
  }
  __device__ int power() const {
    return power_;
  }

 private:
  static constexpr float kSlack = ScalePower::kSlack;

  __device__ static int own_key(int m) {
    return 16 * m + static_cast<int>(threadIdx.x % 4) * 4;
  }
  __device__ float4 factors_of(int m) const {
    return *reinterpret_cast<const float4*>(&shared_.key_factors[own_key(m)]);
  }

  __device__ static void scale(float4& four, float by) {
    four = {four.x * by, four.y * by, four.z * by, four.w * by};
  }
  // Selects, never adds: what stands behind a sequence's end may be anything.
  __device__ void hide(int key, float4& four) const {
    const auto seen = [this](int at, float score) {
      return at >= seen_.first && at < seen_.end ? score : -INFINITY;
    };
    four = {seen(key, four.x), seen(key + 1, four.y), seen(key + 2, four.z), seen(key + 3, four.w)};
  }
  // Of 16 keys each, the first ones are there.
  __device__ static void hide_missing(const int (&live)[kFours], Scores& scores) {
#pragma unroll
    for (int m = 0; m < kFours; ++m) {
      const int left = live[m] - own_key(0);
      float4& four = scores[m];
      four = {left > 0 ? four.x : -INFINITY, left > 1 ? four.y : -INFINITY,
              left > 2 ? four.z : -INFINITY, left > 3 ? four.w : -INFINITY};
    }
  }

  // The reference and the power after this tile take the place of those before it.
  __device__ bool follow(const Scores& scores) {
    float top = -INFINITY;
    float factor_top = 0.0F;
#pragma unroll
    for (int m = 0; m < kFours; ++m) {
      const float4& four = scores[m];
      const float4 by = factors_of(m);
      top = fmaxf(top, fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w)));
      factor_top = fmaxf(factor_top,
                         fmaxf(fmaxf(fabsf(by.x), fabsf(by.y)), fmaxf(fabsf(by.z), fabsf(by.w))));
    }
    top = quad_max(top);
    const int power = ScalePower::follow(power_, __float_as_uint(quad_max(factor_top)));
    const bool stays = top <= ref_ + kSlack && power == power_;
    const bool rises = top > ref_ + kSlack;
    const float keep = rises && ref_ != -INFINITY ? exp2_approx(ref_ - top) : 1.0F;
    const float scale_keep = power_ == 0 ? 1.0F : ScalePower::keep(power_, power);
    if (rises) ref_ = top;
    power_ = power;
    sum_ *= keep;
    if (threadIdx.x % 4 == 0) shared_.factors[row_] = keep * scale_keep;
    return stays;
  }

  Fp8WgmmaShared<kConfig>& shared_;
  const int row_;
  KeyInterval seen_{};  // from the next tile's first key on
  float ref_ = -INFINITY;
  float sum_ = 0.0F;  // of this thread's weights
  int power_ = 0;
};

// A finished work tile's sums from registers: to the output, or as a split to the workspace. A thread has two rows, 8 apart,
// and of every 16 columns four neighbours (shared.cuh: how values stand).

template <SwapAbConfig kConfig> class StoreParts {
 public:
  // Where the thread's rows go, and what they are multiplied by. Rows beyond the work tile's: nowhere. `power`: what the keys'
  // factors were relative to.
  __device__ StoreParts(const LatentParams& params, const Fp8WgmmaShared<kConfig>& shared,
                        const LatentWorkTile& work_tile, int first_row, int power)
      : is_split_(work_tile.slot >= 0) {
    // Opaque: what follows from it would be kept beside the sums, from work tile to work tile.
    const int thread = opaque(static_cast<int>(threadIdx.x % 128));
    const int first_own = thread / 32 * 16 + thread % 32 / 4;
    const float unlift = ScalePower::unlift(power);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int own = first_own + 8 * i;
      const int row = first_row + own;
      targets_[i] = nullptr;
      if (own >= kConfig.rows || row >= work_tile.rows) continue;
      const auto [max, sum] = shared.stats[own];
      if (is_split_) {
        const std::int64_t at = work_tile.slot * params.splits.rows + row;
        targets_[i] = reinterpret_cast<std::byte*>(params.splits.sums + at * LatentConfig::kLatent);
        factors_[i] = unlift;
        if (stores_stats()) params.splits.stats[at] = {max, sum};
        continue;
      }
      const AttendOutput& outputs = params.outputs;
      const std::int64_t token = work_tile.first_token + row / params.heads;
      const int head = row % params.heads;
      const RowEnd end = end_row(outputs, head, max, sum);
      factors_[i] = end.factor * unlift;
      targets_[i] = outputs.out + token * outputs.token_bytes + head * outputs.head_bytes;
      if (outputs.lse != nullptr && stores_stats()) {
        outputs.lse[token * outputs.lse_token_stride + head * outputs.lse_head_stride] = end.lse;
      }
    }
  }

  __device__ void store(int part, const float (&sums)[Fp8Wgmma::kPartSums]) const {
    const int column = Fp8Wgmma::first_column(part) + opaque(static_cast<int>(threadIdx.x % 4)) * 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (targets_[i] == nullptr) continue;
      std::byte* target = targets_[i] + column * (is_split_ ? 4 : 2);
#pragma unroll
      for (int j = 0; j < Fp8Wgmma::kPartSums / 8; ++j) {
        const float* four = &sums[8 * j + 2 * i];
        const float by = factors_[i];
        store_four({four[0] * by, four[1] * by, four[4] * by, four[5] * by}, target, 4 * j);
      }
    }
  }

 private:
  // One of the threads that have a row.
  __device__ static bool stores_stats() {
    return threadIdx.x % 4 == 0 && threadIdx.x / 128 % 2 == 0;
  }

  // At `index`, counted in fours.
  __device__ void store_four(const float4& four, std::byte* target, int index) const {
    if (is_split_) {
      reinterpret_cast<float4*>(target)[index] = four;
    } else {
      reinterpret_cast<uint2*>(target)[index] = {pack_pair<DType::bf16>(four.x, four.y),
                                                 pack_pair<DType::bf16>(four.z, four.w)};
    }
  }

  const bool is_split_;
  float factors_[2];
  std::byte* targets_[2];
};

template <SwapAbConfig kConfig> class SumTiles {
 public:
  // `group`: also the half of the columns. `first_row`: of the work tile, this block's.
  __device__ SumTiles(const MlaDecodeParams& params, Fp8WgmmaShared<kConfig>& shared, int group,
                      int first_row)
      : params_(params.attend),
        shared_(shared),
        group_(group),
        first_row_(first_row),
        row_(shared, static_cast<int>(threadIdx.x % Fp8Wgmma::kSumThreads / 4)) {}

  __device__ void run() {
#pragma unroll 1
    for (;; turns_ += 2) {
      const unsigned number = turns_ / 2;
      const unsigned place = number % SwapAbConfig::kWorkTiles;
      shared_.work_tile_ring.full[place].wait(number / SwapAbConfig::kWorkTiles & 1);
      const LatentWorkTile& work_tile = shared_.work_tiles[place];
      const int tiles = work_tile.tiles;
      if (tiles == 0) return;
      row_.begin(params_, work_tile, first_row_);
      Sums sums = {};
#pragma unroll 1
      for (int left = tiles; left > 0; --left, turns_ ^= 1) add_tile(sums);
      row_.leave_stats();
      sync_sums();
      StoreParts<kConfig> store(params_, shared_, work_tile, first_row_, row_.power());
#pragma unroll
      for (int i = 0; i < kParts; ++i) store.store(part(i), sums[i]);
      shared_.work_tile_ring.empty[turns_ / 2 % SwapAbConfig::kWorkTiles].arrive();
    }
  }

 private:
  static constexpr int kParts = Fp8Wgmma::kGroupParts;
  using Shared = Fp8WgmmaShared<kConfig>;
  using Sums = float[kParts][Fp8Wgmma::kPartSums];

  // The group's part `index`, of all.
  __device__ int part(int index) const {
    return group_ + index * Fp8Wgmma::kSumGroups;
  }

  __device__ static void sync_sums() {
    cutlass::arch::NamedBarrier::sync(Fp8Wgmma::kSumThreads, 3);
  }

  __device__ void add_tile(Sums& sums) {
    typename WeighRow<kConfig>::Scores scores;
    shared_.scores_full.wait(turns_ & 1);
    row_.fetch(turns_ / 2 % 2, scores);
    sync_sums();  // weights take their place
    const bool stays = row_.weigh(scores);
    cutlass::arch::fence_view_async_shared();
    if (!barrier_all(stays, Fp8Wgmma::kSumThreads, 4)) scale(sums);
    shared_.values_full.wait(turns_ & 1);
    start(part(0), sums[0]);
    start(part(1), sums[1]);
    cute::warpgroup_wait<1>();
    shared_.values_empty[part(0)].arrive();
    cute::warpgroup_wait<0>();
    shared_.values_empty[part(1)].arrive();
    shared_.scores_empty.arrive();
#pragma unroll
    for (int i = 0; i < kParts; ++i) pin(sums[i]);
  }

  __device__ void scale(Sums& sums) const {
    const auto row = static_cast<int>(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
    const float factor[2] = {shared_.factors[row], shared_.factors[row + 8]};
#pragma unroll
    for (int i = 0; i < kParts; ++i) scale_rows(sums[i], factor);
  }

  // sums += weights · V of 128 columns.
  __device__ void start(int part, float (&sums)[Fp8Wgmma::kPartSums]) {
    using Product = TransposedWgmma<DType::f16, Fp8Wgmma::kPartColumns>;
    const std::uint32_t weights = broadcast(descriptor_low(&shared_.scores));
    const std::uint32_t values =
        broadcast(address_field(&shared_.values[part]) |
                  static_cast<std::uint32_t>(Shared::kValueSwizzleColumnBytes >> 4) << 16);
    pin(sums);
    cute::warpgroup_arrive();
#pragma unroll
    for (int step = 0; step < SwapAbConfig::kKeys / 16; ++step) {
      detail::issue<Product>(descriptor(weights + (step * kStepBytes >> 4), kRowsHigh),
                             descriptor(values + (step * 16 * kRowBytes >> 4), kRowsHigh), sums,
                             cute::SM90::GMMA::ScaleOut::One,
                             std::make_index_sequence<Fp8Wgmma::kPartSums>{});
    }
    cute::warpgroup_commit_batch();
  }

  const LatentParams& params_;
  Shared& shared_;
  const int group_;
  const int first_row_;
  WeighRow<kConfig> row_;
  // Twice the work tiles before, and one where tiles before were an odd number: registers are few.
  unsigned turns_ = 0;
};

}  // namespace quire::cuda::sm90::mla_decode
