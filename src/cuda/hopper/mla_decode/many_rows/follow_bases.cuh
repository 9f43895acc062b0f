// SPDX-License-Identifier: Apache-2.0
// Weights of a tile, and what its exponents and scales are relative to: a reference for every row, which follows its
// maximum only where that rises by more than kSlack powers of two, and a power for the scales
// (few_rows/scale_power.cuh). That all of them stay is tried first: it is so for nearly every tile, and the four warps
// then exchange one bit.
#pragma once

#include "cuda/hopper/flash_attention/prefill/softmax.cuh"
#include "cuda/hopper/mla_decode/few_rows/barrier_all.cuh"
#include "cuda/hopper/mla_decode/few_rows/scale_power.cuh"
#include "cuda/hopper/mla_decode/few_rows/thread_rows.cuh"
#include "cuda/hopper/mla_decode/many_rows/key_factors.cuh"
#include "cuda/hopper/mla_decode/many_rows/shared.cuh"

namespace quire::cuda::hopper {

template <FewRowsConfig kConfig> class FollowBases {
 public:
  using Rows = ThreadRows<kConfig>;
  using Scores = float[Rows::kScores];
  using Words = std::uint32_t[Rows::kScores / 2];
  using Sums = float[Rows::kThreadRows];

  // `warp`: of the four.
  __device__ FollowBases(ManyRowsShared<kConfig>& shared, int warp)
      : shared_(shared), warp_(warp) {}

  // The warps that score.
  __device__ static void sync() {
    cutlass::arch::NamedBarrier::sync(kThreads, 1);
  }

  // Between two barriers of the warps that score.
  __device__ void begin_item() {
    if (thread() < kConfig.rows) shared_.refs[thread()] = -INFINITY;
    power_ = 0;
  }

  // Scores into weights of f16, times the keys' factors; into `sums` without those.
  __device__ void weigh(const Scores& scores, const KeyFactors& factors, Sums& sums, Words& words) {
    if (thread() == 0) shared_.has_factors = 0;
    Sums added;
#pragma unroll 1
    while (!barrier_all(exponentiate(scores, factors, added, words), kThreads, 3)) {
      rise(scores, factors, sums);
    }
#pragma unroll
    for (int i = 0; i < Rows::kThreadRows; ++i) sums[i] += added[i];
  }

  __device__ void leave_stats() const {
    if (thread() < kConfig.rows) shared_.stats_refs[thread()] = shared_.refs[thread()];
    if (thread() == 0) shared_.stats_power = power_;
  }

 private:
  static constexpr int kThreads = 32 * ManyRows::kScoreWarps;
  static constexpr float kSlack = ScalePower::kSlack;
  static_assert(kConfig.rows <= kThreads);

  __device__ static int thread() {
    return static_cast<int>(threadIdx.x % kThreads);
  }

  __device__ static float2 pair_at(const float (&rows)[kConfig.rows], int index) {
    return *reinterpret_cast<const float2*>(&rows[Rows::row(index)]);
  }

  // True: what this thread has is right with references and power as they are.
  __device__ bool exponentiate(const Scores& scores, const KeyFactors& factors, Sums& added,
                               Words& words) const {
    const float lift = ScalePower::lift(power_);
    const float by[2] = {factors.whole[0] * lift, factors.whole[1] * lift};
    bool stays = power_ != 0 && ScalePower::follow(power_, top_bits(factors)) == power_;
#pragma unroll
    for (int j = 0; j < Rows::kThreadRows / 2; ++j) {
      // Of rows 8j + 2 (lane % 4) and the one after it.
      const float2 factor_pair = pair_at(shared_.query_factors, 2 * j);
      const float2 ref_pair = pair_at(shared_.refs, 2 * j);
      const float factor[2] = {factor_pair.x, factor_pair.y};
      const float ref[2] = {ref_pair.x, ref_pair.y};
      float weights[4];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float top = fmaxf(scores[4 * j + e], scores[4 * j + e + 2]) * factor[e];
        stays = stays && top <= ref[e] + kSlack;
        const float offset = ref[e] == -INFINITY ? 0.0F : -ref[e];
        weights[e] = exp2_approx(fmaf(scores[4 * j + e], factor[e], offset));
        weights[e + 2] = exp2_approx(fmaf(scores[4 * j + e + 2], factor[e], offset));
        added[2 * j + e] = weights[e] + weights[e + 2];
      }
      words[2 * j] = pack_pair<DType::f16>(weights[0] * by[0], weights[1] * by[0]);
      words[2 * j + 1] = pack_pair<DType::f16>(weights[2] * by[1], weights[3] * by[1]);
    }
    return stays;
  }

  // References and power after this tile take the place of those before it.
  __device__ void rise(const Scores& scores, const KeyFactors& factors, Sums& sums) {
    leave_tops(scores, factors);
    sync();
    const uint4 tops = *reinterpret_cast<const uint4*>(shared_.scale_tops);
    const int before = power_;
    power_ = ScalePower::follow(before, max(max(tops.x, tops.y), max(tops.z, tops.w)));
    const float scale_keep = before == 0 ? 1.0F : ScalePower::keep(before, power_);
    if (thread() < kConfig.rows) follow_row(thread(), scale_keep);
    if (thread() == 0) shared_.has_factors = 1;
    sync();
#pragma unroll
    for (int i = 0; i < Rows::kThreadRows; ++i) sums[i] *= shared_.tops[1][Rows::row(i)];
  }
  // The row's new reference; what its sums are worth relative to it, those of weights where the tops were.
  __device__ void follow_row(int row, float scale_keep) {
    float top = -INFINITY;
#pragma unroll
    for (int warp = 0; warp < ManyRows::kScoreWarps; ++warp) {
      top = fmaxf(top, shared_.tops[warp][row]);
    }
    if (top != -INFINITY) top *= shared_.query_factors[row];
    const float before = shared_.refs[row];
    const bool follows = top > before + kSlack;
    const float keep = follows && before != -INFINITY ? exp2_approx(before - top) : 1.0F;
    if (follows) shared_.refs[row] = top;
    shared_.factors[row] = keep * scale_keep;
    shared_.tops[1][row] = keep;
  }

  // Of this thread's keys. Positive numbers are in the order of their bits.
  __device__ static std::uint32_t top_bits(const KeyFactors& factors) {
    return __float_as_uint(fmaxf(fabsf(factors.whole[0]), fabsf(factors.whole[1])));
  }

  __device__ void leave_tops(const Scores& scores, const KeyFactors& factors) {
    const std::uint32_t bits = __reduce_max_sync(0xffffffff, top_bits(factors));
    if (Rows::lane() == 0) shared_.scale_tops[warp_] = bits;
#pragma unroll
    for (int i = 0; i < Rows::kThreadRows; ++i) {
      float top = Rows::own_top(scores, i);
#pragma unroll
      for (int distance = 4; distance < 32; distance *= 2) {
        top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, distance));
      }
      if (Rows::lane() < 4) shared_.tops[warp_][Rows::row(i)] = top;
    }
  }

  ManyRowsShared<kConfig>& shared_;
  const int warp_;
  int power_ = 0;  // what the keys' factors are relative to
};

}  // namespace quire::cuda::hopper
