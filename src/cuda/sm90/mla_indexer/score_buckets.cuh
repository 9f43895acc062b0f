// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/mla_indexer/select.cuh"

namespace quire::cuda::sm90::mla_indexer {

// Scores between the least and the greatest in buckets of one width. Ranks are no measure of that: one
// score close to zero makes most of them differences of exponents.
struct ScoreBuckets {
  __device__ explicit ScoreBuckets(const RankLimits& limits) : least(score_of(limits.least)) {
    const float range = score_of(limits.greatest) - least;
    per_score = __fdividef(static_cast<float>(kBuckets - 1), range);
    are_any = limits.least > kNanRank && isfinite(range) && isfinite(per_score) && per_score > 0.0f;
  }
  // A greater rank has no lesser one. Absent keys, whose score is a NaN, are in the first.
  __device__ unsigned of(std::uint32_t rank) const {
    const unsigned bucket = __float2uint_rz((score_of(rank) - least) * per_score);
    return min(bucket, static_cast<unsigned>(kBuckets - 1));
  }
  // Close to the least rank of a bucket.
  __device__ std::uint32_t rank_near(unsigned bucket) const {
    return rank_of_number(least + __fdividef(static_cast<float>(bucket), per_score));
  }

  float least;
  float per_score;
  bool are_any;  // false: there are infinities, NaN, or no two scores
};

}  // namespace quire::cuda::sm90::mla_indexer
