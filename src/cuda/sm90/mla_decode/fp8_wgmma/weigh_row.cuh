// SPDX-License-Identifier: Apache-2.0
// The softmax of one row, by the four threads of a quad: each has keys 16m + 4c … + 3 of a tile, c its number in the
// quad.
//
// Exponents are relative to a reference, which follows the row's maximum only where that rises by more than kSlack powers
// of two, and the keys' factors to a power (swap_ab/running_max.cuh): sums of values are then seldom scaled again.
#pragma once

#include "cuda/common/softmax/softmax.cuh"
#include "cuda/sm90/mla_decode/fp8_wgmma/shared.cuh"
#include "cuda/sm90/mla_decode/swap_ab/running_max.cuh"

namespace quire::cuda::sm90::mla_decode {

template <SwapAbConfig kConfig> class WeighRow {
 public:
  static constexpr int kFours = SwapAbConfig::kKeys / 16;
  using Scores = float4[kFours];

  // `row`: of the block.
  __device__ WeighRow(Fp8WgmmaShared<kConfig>& shared, int row) : shared_(shared), row_(row) {}

  // `first_row`: of the item, this block's.
  __device__ void begin(const LatentParams& params, const LatentItem& item, int first_row) {
    const KeyInterval seen =
        params.visible.of(item.position + (first_row + row_) / params.heads, item.num_keys);
    seen_ = {.first = seen.first - item.first_key, .end = seen.end - item.first_key};
    ref_ = -INFINITY;
    sum_ = 0.0F;
    power_ = 0;
  }

  // The next tile's, from shared memory, in powers of two; keys that are not seen, or not there, are -inf.
  __device__ void fetch(Scores& scores) {
    const float to_log2 = row_ < kConfig.rows ? shared_.query_factors[row_] : 0.0F;
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

  // When the item's tiles are done.
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

}  // namespace quire::cuda::sm90::mla_decode
