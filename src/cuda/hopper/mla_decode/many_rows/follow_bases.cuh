// SPDX-License-Identifier: Apache-2.0
// Weights of a tile, and what its exponents and scales are relative to: a reference for every row, which follows its
// maximum only where that rises by more than kSlack powers of two, and a power for the scales
// (few_rows/scale_power.cuh). Nearly every tile leaves all of them as they were, and the four warps then exchange one
// bit.
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
    if (!barrier_all(stays(scores, factors), kThreads, 3)) rise(scores, factors, sums);
    exponentiate(scores, factors, sums, words);
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

  // This thread's scores and factors ask for no other references and power.
  __device__ bool stays(const Scores& scores, const KeyFactors& factors) const {
    bool stays = power_ != 0 && ScalePower::follow(power_, top_bits(factors)) == power_;
#pragma unroll
    for (int j = 0; j < Rows::kThreadRows; j += 2) {
      const float2 factor = pair_at(shared_.query_factors, j);
      const float2 ref = pair_at(shared_.refs, j);
      stays = stays && Rows::own_top(scores, j) * factor.x <= ref.x + kSlack &&
              Rows::own_top(scores, j + 1) * factor.y <= ref.y + kSlack;
    }
    return stays;
  }

  __device__ void exponentiate(const Scores& scores, const KeyFactors& factors, Sums& sums,
                               Words& words) const {
    const float lift = ScalePower::lift(power_);
    const float by[2] = {factors.whole[0] * lift, factors.whole[1] * lift};
#pragma unroll
    for (int j = 0; j < Rows::kThreadRows; j += 2) {
      const float2 factor = pair_at(shared_.query_factors, j);
      const float2 ref = pair_at(shared_.refs, j);
      const float offset[2] = {offset_of(ref.x), offset_of(ref.y)};
      const float* of_pair = &scores[2 * j];  // two rows of the first key, two of the second
#pragma unroll
      for (int key = 0; key < 2; ++key) {
        const float first = exp2_approx(fmaf(of_pair[2 * key], factor.x, offset[0]));
        const float second = exp2_approx(fmaf(of_pair[2 * key + 1], factor.y, offset[1]));
        sums[j] += first;
        sums[j + 1] += second;
        words[j + key] = pack_pair<DType::f16>(first * by[key], second * by[key]);
      }
    }
  }
  __device__ static float offset_of(float ref) {
    return ref == -INFINITY ? 0.0F : -ref;
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
