// SPDX-License-Identifier: Apache-2.0
// The sums of the two warpgroups over their own tiles become one: warpgroup w finishes columns
// [128w, 128w + 128) of the block's. Thread for thread, through the place of the partial scores.
#pragma once

#include "cuda/hopper/latent_attention/products.cuh"
#include "cuda/hopper/latent_attention/row_stats.cuh"

namespace quire::cuda::hopper {

inline constexpr int kJoinedSums = kTileSums / 2;
inline constexpr int kJoinBarrier = 0;

// What two sets of tiles are worth together: even and odd tiles of the item, never this and the other
// warpgroup, so that the result does not depend on who took which.
struct JoinWeights {
  float even[2];
  float odd[2];
};

__device__ inline JoinWeights join_stats(RowStats& own, const float4& other, bool owns_even) {
  const float other_max[2] = {other.x, other.y};
  const float other_sum[2] = {other.z, other.w};
  JoinWeights weights;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float top = fmaxf(own.max[i], other_max[i]);
    const float own_weight = rebased(own.max[i], top);
    const float other_weight = rebased(other_max[i], top);
    weights.even[i] = owns_even ? own_weight : other_weight;
    weights.odd[i] = owns_even ? other_weight : own_weight;
    const float even_sum = owns_even ? own.sum[i] : other_sum[i];
    const float odd_sum = owns_even ? other_sum[i] : own.sum[i];
    own.sum[i] = fmaf(odd_sum, weights.odd[i], even_sum * weights.even[i]);
    own.max[i] = top;
  }
  return weights;
}

// All warps that multiply, by a barrier in shared memory: what passes between the warpgroups here is
// plain loads and stores, and racecheck does not see a named barrier of a part of the block.
class JoinBarrier {
 public:
  __device__ explicit JoinBarrier(EmptyBarrier& barrier) : barrier_(barrier) {}

  __device__ void sync() {
    barrier_.arrive();
    barrier_.wait(phase_);
    phase_ ^= 1;
  }

 private:
  EmptyBarrier& barrier_;
  std::uint32_t phase_ = 0;
};

// kWarpgroup: the caller's. All threads that multiply take part.
template <LatentConfig kConfig, int kWarpgroup>
__device__ inline void join_warpgroups(LatentShared<kConfig>& shared, JoinBarrier& barrier,
                                       bool owns_even, const float (&sums)[kTileSums],
                                       RowStats& stats, float (&joined)[kJoinedSums]) {
  constexpr int kVectors = LatentShared<kConfig>::kPartialVectors;
  constexpr int kOther = kWarpgroup ^ 1;
  const auto thread = static_cast<int>(threadIdx.x % 128);
  const int warp = thread / 32;
  const int lane = thread % 32;
  shared.stats[kWarpgroup * 128 + thread] = {stats.max[0], stats.max[1], stats.sum[0],
                                             stats.sum[1]};
  JoinWeights weights;
#pragma unroll
  for (int round = 0; round < kJoinedSums / (4 * kVectors); ++round) {
    const int first = round * 4 * kVectors;
    barrier.sync();  // nobody waits for partial scores or reads what is replaced
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const float* given = &sums[kOther * kJoinedSums + first + 4 * i];
      shared.partials[4 * kOther + warp][i][lane] = {given[0], given[1], given[2], given[3]};
    }
    barrier.sync();
    if (round == 0) weights = join_stats(stats, shared.stats[kOther * 128 + thread], owns_even);
#pragma unroll
    for (int i = 0; i < 4 * kVectors; ++i) {
      const float own = sums[kWarpgroup * kJoinedSums + first + i];
      const float other = reinterpret_cast<const float*>(
          &shared.partials[4 * kWarpgroup + warp][i / 4][lane])[i % 4];
      const int row = i / 2 % 2;
      joined[first + i] = fmaf(owns_even ? other : own, weights.odd[row],
                               (owns_even ? own : other) * weights.even[row]);
    }
  }
  barrier.sync();  // the place is free again
}

}  // namespace quire::cuda::hopper
