// SPDX-License-Identifier: Apache-2.0
// Weights of a tile from its scores, for the warps of one group.
//
// Exponents are relative to a reference of the row, which follows its maximum only where that rises by
// more than kSlack powers of two: the sums of values are then seldom scaled again.
#pragma once

#include <cute/arch/copy_sm90.hpp>

#include "cuda/common/softmax/softmax.cuh"
#include "cuda/sm90/mla_decode/latent/shared.cuh"
#include "cuda/sm90/mla_decode/pingpong/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

// What a group has of its tiles' rows: the thread's two, 8 apart.
class SoftmaxTile {
 public:
  using Scores = float[kTileScores];
  using Words = std::uint32_t[kTileScores / 2];

  __device__ explicit SoftmaxTile(float to_log2) : to_log2_(to_log2) {}

  // Of the exponents, when this group last had a tile.
  __device__ const float (&refs() const)[2] { return ref_; }
  // Of this thread's weights, relative to them.
  __device__ const float (&sums() const)[2] { return sum_; }

  // Before the scores are there: the references that the tile before left.
  __device__ void start(const float (&before)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      before_[i] = before[i];
      keep_[i] = kept(before[i], i);
    }
  }

  // Weights, and what the sums of values are to be multiplied by. That the references stay is tried
  // first: it is so for nearly every tile, and nothing then waits for the maxima.
  __device__ void weigh(Scores& scores, Words& words, float (&factor)[2]) {
    float added[2];
    exponentiate(scores, before_, words, added);
    unsigned stays = 1;  // no branches: the maxima are found beside the exponentials
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float top = own_highest(scores, i) * to_log2_;
      stays &= static_cast<unsigned>(top <= before_[i] + kSlack);
      stays &= static_cast<unsigned>(is_near(before_[i]));
      factor[i] = 1.0F;
    }
    if (!__all_sync(0xffffffff, stays != 0)) {
      follow(scores, factor);
      if (!is_near(before_[0]) || !is_near(before_[1])) subtract_far_references(scores);
      exponentiate(scores, before_, words, added);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum_[i] = fmaf(sum_[i], keep_[i], added[i]);
      ref_[i] = before_[i];
    }
  }

 private:
  static constexpr float kSlack = 8.0F;

  // What this group's sums are worth relative to `now`.
  __device__ float kept(float now, int i) const {
    return ref_[i] == -INFINITY ? 1.0F : exp2_approx(ref_[i] - now);
  }

  // The references after this tile take the place of those before it.
  __device__ void follow(const Scores& scores, float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float before = before_[i];
      const float top = quad_max(own_highest(scores, i)) * to_log2_;
      const float now = top > before + kSlack || before == -INFINITY ? top : before;
      factor[i] = before == -INFINITY ? 1.0F : exp2_approx(before - now);
      keep_[i] = kept(now, i);
      before_[i] = now;
    }
  }

  // What exponentiate() would take off with an error that is too large (is_near()).
  __device__ void subtract_far_references(Scores& scores) const {
#pragma unroll
    for (int j = 0; j < kTileScores; ++j) {
      const float reference = before_[j / 2 % 2];
      if (is_near(reference) || reference == -INFINITY) continue;
      scores[j] = (__fmul_rn(scores[j], to_log2_) - reference) / to_log2_;
    }
  }

  __device__ void exponentiate(const Scores& scores, const float (&refs)[2], Words& words,
                               float (&added)[2]) const {
    const float offset[2] = {is_near(refs[0]) ? refs[0] : 0.0F, is_near(refs[1]) ? refs[1] : 0.0F};
    float even[2] = {0.0F, 0.0F};
    float odd[2] = {0.0F, 0.0F};
#pragma unroll
    for (int j = 0; j < kTileScores; j += 2) {
      const int i = j / 2 % 2;
      const float first = exp2_approx(fmaf(scores[j], to_log2_, -offset[i]));
      const float second = exp2_approx(fmaf(scores[j + 1], to_log2_, -offset[i]));
      even[i] += first;
      odd[i] += second;
      words[j / 2] = pack_pair<DType::bf16>(first, second);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) added[i] = even[i] + odd[i];
  }

  // Of this thread's scores.
  __device__ static float own_highest(const Scores& scores, int i) {
    float highest = fmaxf(scores[2 * i], scores[2 * i + 1]);
#pragma unroll
    for (int j = 2 * i + 4; j < kTileScores; j += 4) {
      highest = fmaxf(highest, fmaxf(scores[j], scores[j + 1]));
    }
    return highest;
  }

  const float to_log2_;
  float ref_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {0.0F, 0.0F};
  float before_[2];  // the rows' references, before this tile and then after it
  float keep_[2];
};

// A warp's 16 rows of weights, as the products read them. `warp`: of the group.
__device__ inline void store_weights(const std::uint32_t (&words)[kTileScores / 2], int warp,
                                     std::byte* weights) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const int row = 16 * warp + lane % 16;
#pragma unroll
  for (int chunk = 0; chunk < Pingpong::kKeys / 8; chunk += 2) {
    auto& place =
        reinterpret_cast<cute::uint128_t&>(weights[swizzle_column_offset(row, chunk + lane / 16)]);
    cute::SM90_U32x4_STSM_N::copy(words[2 * chunk], words[2 * chunk + 1], words[2 * chunk + 2],
                                  words[2 * chunk + 3], place);
  }
}

// Rows behind the sequence's end, in its last page, may hold anything, and 0 · NaN is NaN. By a group.
__device__ inline void zero_behind(
    int num_keys, PingpongShared::SwizzleColumn (&stage)[Pingpong::kSwizzleColumns]) {
  constexpr int kChunks = kRowBytes / 16;
#pragma unroll 1
  for (int swizzle_column = 0; swizzle_column < Pingpong::kValueSwizzleColumns; ++swizzle_column) {
    auto* chunks = reinterpret_cast<uint4*>(stage[swizzle_column]);
#pragma unroll 1
    for (int chunk = num_keys * kChunks + static_cast<int>(threadIdx.x % 128);
         chunk < Pingpong::kKeys * kChunks; chunk += 128) {
      chunks[chunk] = uint4{};
    }
  }
}

}  // namespace quire::cuda::sm90::mla_decode
