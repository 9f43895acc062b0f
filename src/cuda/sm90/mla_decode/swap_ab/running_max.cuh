// SPDX-License-Identifier: Apache-2.0
// What a group's exponents and scales are relative to, from tile to tile: a reference for every row,
// which follows its maximum only where that rises by more than kSlack powers of two, and a power for the
// scales (running_max.cuh). The values' sums are then seldom scaled again. Groups have tiles in turn, and
// hand the references on.
#pragma once

#include <cstdint>

#include "cuda/common/thread/warp_reduce.cuh"
#include "cuda/sm90/mla_decode/swap_ab/operands.cuh"
#include "cuda/sm90/mla_decode/swap_ab/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

// Weights of e4m3 values are f16, times the scales of the keys, and scales may be of any size: relative
// to a power of two that follows the largest scale of the sequence so far. (bf16 would hold any product,
// but e4m3 becomes bf16 at three times the instructions.)
//
// Kept as the power's exponent field in fp32. A weight is at most 2^kSlack, a scale below 8 times the
// power, so that kLift more powers are left below 2^15: what is 2^22 below the largest still has f16's
// digits.

struct ScalePower {
  static constexpr float kSlack = 4.0F;  // of the exponents, for weights of f16
  static constexpr int kLift = 8;
  static constexpr int kMargin = 2;  // powers that a scale may rise before the power follows
  static constexpr int kLeast = 20;
  static constexpr int kBias = 127;

  // `top`: bits of the largest scale of a tile; `before`: 0 where there is none.
  __device__ static int follow(int before, std::uint32_t top) {
    const int field = max(static_cast<int>(top >> 23), kLeast);
    return field > before + kMargin || before == 0 ? field : before;
  }
  // Whether it would be `before` again, without the steps to the power that it would be.
  __device__ static bool stays(int before, std::uint32_t top) {
    return (before != 0) & (top < static_cast<std::uint32_t>(before + kMargin + 1) << 23);
  }
  // What weights are multiplied by, with the scales; and sums, when they are stored.
  __device__ static float lift(int field) { return power(kLift + kBias - field); }
  __device__ static float unlift(int field) { return power(field - kBias - kLift); }
  // What sums relative to `before` are worth relative to `now`, both known.
  __device__ static float keep(int before, int now) { return power(max(before - now, -126)); }

 private:
  __device__ static float power(int exponent) {
    return __uint_as_float(static_cast<std::uint32_t>(exponent + kBias) << 23);
  }
};

template <SwapAbConfig kConfig> class RunningMax {
 public:
  using Rows = ThreadRows<kConfig>;
  static constexpr int kScores = Rows::kScores;
  static constexpr int kThreadRows = Rows::kThreadRows;

  // `group`: of the two; `warp`: of the group.
  __device__ RunningMax(const LatentParams& params, SwapAbShared<kConfig>& shared, int group,
                        int warp)
      : params_(params), shared_(shared), group_(group), warp_(warp) {}

  // The work tile's queries are there.
  __device__ void begin_work_tile() {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      refs_[i] = -INFINITY;
      if constexpr (kConfig.is_fp8()) factors_[i] = shared_.query_factors[Rows::row(i)];
    }
    scale_power_ = 0;
  }

  // Of the thread's row `index`, when this group last had a tile.
  __device__ float of(int index) const {
    return refs_[index];
  }
  // What remains to be taken off its scores.
  __device__ float offset(int index) const {
    return is_near(refs_[index]) ? refs_[index] : 0.0F;
  }
  // From a score of it to powers of two. Queries of bf16 rows stand as they are.
  __device__ float factor(int index) const {
    return kConfig.is_fp8() ? factors_[index] : params_.to_log2;
  }
  __device__ int scale_power() const {
    return scale_power_;
  }

  // References from the other group, which had the tile before, and on to it. `turn`: a phase that changes with each of
  // this group's tiles. `sums`: of this thread's weights so far. `keep`: what the sums of the work tile's tiles
  // before are worth now. Most tiles leave all references as they were: whether this is
  // one is all that the warps then exchange.
  __device__ void follow(bool is_first, std::uint32_t turn, float (&scores)[kScores],
                         const KeyScales<kConfig>& scales, float (&sums)[kThreadRows],
                         float (&keep)[kThreadRows]) {
    const int other = group_ ^ 1;
    // (The block's first tile waits for nobody: no barrier is in the phase before its first.)
    shared_.refs_full[other].wait(turn ^ static_cast<std::uint32_t>(other));
    float before[kThreadRows];
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      before[i] = is_first ? -INFINITY : shared_.refs[other][Rows::row(i)];
      keep[i] = 1.0F;
    }
    const int power = kConfig.is_fp8() && !is_first ? shared_.scale_powers[other] : 0;
    scale_power_ = power;
    if (!all_of_group(stays(scores, scales, before, power))) {
      rise(scores, scales, power, before, keep);
      subtract_far_references(before, scores);
    }
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      sums[i] *= refs_[i] == -INFINITY ? 1.0F : exp2_approx(refs_[i] - before[i]);
      refs_[i] = before[i];
      if (warp_ == 0 && Rows::lane() < 4) shared_.refs[group_][Rows::row(i)] = before[i];
    }
    if (kConfig.is_fp8() && warp_ == 0 && Rows::lane() == 0)
      shared_.scale_powers[group_] = scale_power_;
    shared_.refs_full[group_].arrive();
  }

 private:
  static constexpr float kSlack = kConfig.is_fp8() ? ScalePower::kSlack : 8.0F;
  static constexpr int kVoteBarrier = 4;

  __device__ void sync_group() const {
    cutlass::arch::NamedBarrier::sync(128, static_cast<std::uint32_t>(1 + group_));
  }
  __device__ bool all_of_group(bool is_so) const {
    return barrier_all(is_so, 128, static_cast<std::uint32_t>(kVoteBarrier + group_));
  }

  // This thread's scores and scales ask for no other references.
  __device__ bool stays(const float (&scores)[kScores], const KeyScales<kConfig>& scales,
                        const float (&refs)[kThreadRows], int power) const {
    bool stays = !kConfig.is_fp8() || ScalePower::stays(power, top_bits(scales));
    // Without a jump from one to the next.
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const float top = Rows::own_top(scores, i) * factor(i);
      stays = stays & is_near(refs[i]) & (top <= refs[i] + kSlack);
    }
    return stays;
  }

  // What the exponentials would take off with an error that is too large (is_near()).
  __device__ void subtract_far_references(const float (&refs)[kThreadRows],
                                          float (&scores)[kScores]) const {
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int index = Rows::row_of(i);
      if (is_near(refs[index]) || refs[index] == -INFINITY) continue;
      scores[i] = (__fmul_rn(scores[i], factor(index)) - refs[index]) / factor(index);
    }
  }

  // The references after this tile take the place of those before it.
  __device__ void rise(const float (&scores)[kScores], const KeyScales<kConfig>& scales, int power,
                       float (&refs)[kThreadRows], float (&keep)[kThreadRows]) {
    leave_tops(scores);
    if constexpr (kConfig.is_fp8()) leave_scale_top(scales);
    sync_group();
    const float scale_keep = follow_scales(power);
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const float before = refs[i];
      const float top = highest(i);
      refs[i] = top > before + kSlack || before == -INFINITY ? top : before;
      if (before != -INFINITY) keep[i] = exp2_approx(before - refs[i]) * scale_keep;
    }
  }
  // Of this thread's keys. Positive numbers are in the order of their bits.
  __device__ static std::uint32_t top_bits(const KeyScales<kConfig>& scales) {
    float top = 0.0F;
#pragma unroll
    for (int group = 0; group < kConfig.scale_groups(); ++group) {
      top = fmaxf(top, fmaxf(fabsf(scales.of[0][group]), fabsf(scales.of[1][group])));
    }
    return __float_as_uint(top);
  }
  __device__ void leave_scale_top(const KeyScales<kConfig>& scales) {
    const std::uint32_t bits = __reduce_max_sync(0xffffffff, top_bits(scales));
    if (Rows::lane() == 0) shared_.scale_tops[group_][warp_] = bits;
  }
  // What the sums so far are worth relative to the tile's power of scales.
  __device__ float follow_scales(int before) {
    if constexpr (!kConfig.is_fp8()) return 1.0F;
    const uint4 tops = *reinterpret_cast<const uint4*>(shared_.scale_tops[group_]);
    scale_power_ = ScalePower::follow(before, max(max(tops.x, tops.y), max(tops.z, tops.w)));
    return before == 0 ? 1.0F : ScalePower::keep(before, scale_power_);
  }
  __device__ void leave_tops(const float (&scores)[kScores]) {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const float top = column_max(Rows::own_top(scores, i));
      if (Rows::lane() < 4) shared_.tops[group_][warp_][Rows::row(i)] = top;
    }
  }
  // Of a row in this tile, in powers of two.
  __device__ float highest(int index) const {
    float top = -INFINITY;
#pragma unroll
    for (int warp = 0; warp < SwapAbConfig::kGroupWarps; ++warp) {
      top = fmaxf(top, shared_.tops[group_][warp][Rows::row(index)]);
    }
    return top == -INFINITY ? top : top * factor(index);
  }

  const LatentParams& params_;
  SwapAbShared<kConfig>& shared_;
  const int group_;
  const int warp_;
  float refs_[kThreadRows];
  float factors_[kThreadRows];
  int scale_power_ = 0;  // what the scales of its tiles are relative to
};

}  // namespace quire::cuda::sm90::mla_decode
