// SPDX-License-Identifier: Apache-2.0
// One of the two groups that multiply. Each scores one tile of a pair and sums one half of the columns
// over both: while one is at its softmax, the tensor cores are the other's.
#pragma once

#include <cute/arch/copy_sm90.hpp>

#include "cuda/common/softmax/softmax.cuh"
#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/mla_decode/latent/shared.cuh"
#include "cuda/sm90/mla_decode/latent/store.cuh"
#include "cuda/sm90/mla_decode/pingpong/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

// Weights of a tile from its scores, for the warps of one group.
//
// Exponents are relative to a reference of the row, which follows its maximum only where that rises by
// more than kSlack powers of two: the sums of values are then seldom scaled again.

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

class AttendPairs {
 public:
  // `group`: also the stage that it scores and the half that it sums. Not a template's: code that both
  // groups share is fetched once, and fits its cache.
  __device__ AttendPairs(const LatentParams& params, PingpongShared& shared, int group, int rank)
      : params_(params),
        shared_(shared),
        group_(group),
        warp_(static_cast<int>(threadIdx.x % 128 / 32)),
        row_(16 * warp_ + static_cast<int>(threadIdx.x % 32 / 4)),
        first_row_(rank * Pingpong::kRows) {}

  __device__ void run() {
    for (RingPosition<Pingpong::kWorkTiles> work_tile_at;; work_tile_at.advance()) {
      shared_.work_tile_ring.wait_full(work_tile_at);
      const LatentWorkTile work_tile = shared_.work_tiles[work_tile_at.stage];
      shared_.work_tile_ring.empty[work_tile_at.stage].arrive();
      if (work_tile.tiles == 0) return;
      attend(work_tile);
    }
  }

 private:
  using Scores = SoftmaxTile::Scores;
  using Words = SoftmaxTile::Words;
  using Sums = float[kHalfSums];

  // Rounds of a stage: those that this block has had so far.
  __device__ std::uint32_t phase(int stage) const { return phases_ >> stage & 1; }

  __device__ void attend(const LatentWorkTile& work_tile) {
    const LatentRowMask row_mask(params_, work_tile, params_.splits.rows);
    SoftmaxTile softmax(params_.to_log2);
    Sums sums = {};
    // A block's first work tile is ended once before its first keys have come: code that runs for the first time is
    // mostly waited for, and at the end of the work everybody would wait. The group of the second tile has the
    // time; one row of zeros is stored, where the same threads store what belongs there later. Opaque: a copy
    // of the code for the rehearsal would be of no use. It waits for a quarter of the first tile whose place is filled
    // again only after this group has summed it: no later round can take its place before a late group has looked.
#pragma unroll 1
    for (bool is_rehearsal = opaque(work_tiles_ == 0 && group_ == 1 ? 1 : 0) != 0;;
         is_rehearsal = false) {
      if (is_rehearsal) {
        shared_.full[0][2].wait(0);
      } else {
        attend_tiles(work_tile, row_mask, softmax, sums);
      }
      finish(work_tile, softmax, sums, is_rehearsal);
      if (!is_rehearsal) break;
    }
    ++work_tiles_;
  }

  __device__ void attend_tiles(const LatentWorkTile& work_tile, const LatentRowMask& row_mask,
                               SoftmaxTile& softmax, Sums& sums) {
    shared_.q_full.wait(work_tiles_ & 1);
#pragma unroll 1
    for (int tile = 0; tile < work_tile.tiles; tile += 2) {
      Words words = {};
      float factor[2] = {1.0F, 1.0F};
      const bool has_own = tile + group_ < work_tile.tiles;
      const bool has_other = tile + (group_ ^ 1) < work_tile.tiles;
      if (has_own) weigh(row_mask, softmax, tile + group_, words, factor);
      if (tile + 2 >= work_tile.tiles) arrive_once(shared_.q_empty);
        // The pair's first tile first: its stage is the first that is wanted again.
#pragma unroll 1
      for (int turn = 0; turn < 2; ++turn) {
        if (turn == group_) {
          if (has_own) add_own(words, factor, sums);
        } else if (has_other) {
          add_other(sums);
        }
      }
      phases_ ^= tile + 1 < work_tile.tiles ? 3U : 1U;
    }
  }

  // Scores of this group's tile, weights of it in registers and for the other group.
  __device__ void weigh(const LatentRowMask& row_mask, SoftmaxTile& softmax, int tile, Words& words,
                        float (&factor)[2]) {
    Scores scores;
    issue_scores(scores);
    // What is known before the products are done.
    const std::uint64_t valid = shared_.valid[group_];
    float before[2] = {-INFINITY, -INFINITY};
    if (tile > 0) take_refs(before);
    softmax.start(before);
    cute::warpgroup_wait<0>();
    pin(scores);
    arrive_once(shared_.scored[group_]);
    row_mask.hide(tile, valid, first_row_ + row_, scores);
    softmax.weigh(scores, words, factor);
    hand_on(softmax.refs(), factor);
    shared_.scored[group_].wait(phase(group_));
    store_weights(words, warp_, shared_.weights(group_));
    const int num_keys = row_mask.num_keys(tile);
    if (num_keys < Pingpong::kKeys) zero_behind(num_keys, shared_.stages[group_]);
    cutlass::arch::fence_view_async_shared();
    shared_.weights_full[group_].arrive();
    if (num_keys < Pingpong::kKeys) shared_.weights_full[group_].wait(phase(group_));
  }

  __device__ void issue_scores(Scores& scores) {
    const std::uint32_t a = broadcast(descriptor_low(&shared_.q));
    const std::uint32_t b = broadcast(descriptor_low(&shared_.stages[group_]));
    pin(scores);
#pragma unroll
    for (int quarter = 0; quarter < Pingpong::kQuarters; ++quarter) {
      shared_.full[group_][quarter].wait(phase(group_));
      cute::warpgroup_arrive();  // else the compiler adds one, and serialises the products
#pragma unroll
      for (int i = 0; i < Pingpong::kQuarterSwizzleColumns; ++i) {
        issue_swizzle_column(a, b, quarter * Pingpong::kQuarterSwizzleColumns + i,
                             quarter == 0 && i == 0, scores);
      }
    }
    issue_swizzle_column(a, b, Pingpong::kRopeSwizzleColumn, false, scores);
    cute::warpgroup_commit_batch();
  }

  // The rows' references, from the warp of the other group that had the tile before: of this pair's
  // first tile, or of the last pair's second.
  __device__ void take_refs(float (&before)[2]) {
    const int other = group_ ^ 1;
    shared_.refs_full[other][warp_].wait(phase(other) ^ (group_ == 0 ? 1 : 0));
#pragma unroll
    for (int i = 0; i < 2; ++i) before[i] = shared_.refs[row_ + 8 * i];
  }

  // To the other group, which has read what it replaces: the factors of this stage's last tile before the
  // stage was filled again, the references before it left its own.
  __device__ void hand_on(const float (&refs)[2], const float (&factor)[2]) {
    __syncwarp();
    if (threadIdx.x % 4 == 0) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        shared_.factors[group_][row_ + 8 * i] = factor[i];
        shared_.refs[row_ + 8 * i] = refs[i];
      }
    }
    shared_.refs_full[group_][warp_].arrive();
  }

  __device__ static void scale(Sums& sums, const float (&factor)[2]) {
    if (!__all_sync(0xffffffff, factor[0] == 1.0F && factor[1] == 1.0F)) scale_rows(sums, factor);
  }

  __device__ void add_own(Words& words, const float (&factor)[2], Sums& sums) {
    scale(sums, factor);
    pin(sums);
    pin(words);
    cute::warpgroup_arrive();
    issue_own(words, shared_.stages[group_][group_ * Pingpong::kHalfSwizzleColumns], sums);
    cute::warpgroup_commit_batch();
    cute::warpgroup_wait<0>();
    pin(sums);
    shared_.empty[group_][group_].arrive();
  }

  __device__ void add_other(Sums& sums) {
    const int stage = group_ ^ 1;
    shared_.weights_full[stage].wait(phase(stage));
    const float factor[2] = {shared_.factors[stage][row_], shared_.factors[stage][row_ + 8]};
    scale(sums, factor);
    pin(sums);
    cute::warpgroup_arrive();
    issue_other(shared_.weights(stage),
                shared_.stages[stage][group_ * Pingpong::kHalfSwizzleColumns], sums);
    cute::warpgroup_commit_batch();
    cute::warpgroup_wait<0>();
    pin(sums);
    shared_.empty[stage][group_].arrive();
  }

  __device__ void finish(const LatentWorkTile& work_tile, const SoftmaxTile& softmax,
                         const Sums& sums, bool is_rehearsal) {
    RowStats stats{.max = {0.0F, 0.0F}, .sum = {1.0F, 1.0F}};
    LatentWorkTile stored = work_tile;
    if (is_rehearsal) {
      stored.rows = min(work_tile.rows, first_row_ + 1);
    } else {
      stats = exchange_stats(softmax);
    }
    store_work_tile<DType::bf16>(
        params_, stored,
        {.row = first_row_ + row_, .column = group_ * kHalfColumns, .stores_stats = group_ == 0},
        stats, sums);
  }

  // Both groups' sums of weights.
  __device__ RowStats exchange_stats(const SoftmaxTile& softmax) {
    auto& rows = shared_.stats[work_tiles_ & 1];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float sum = quad_sum(softmax.sums()[i]);
      if (threadIdx.x % 4 == 0) rows[group_][row_ + 8 * i] = {softmax.refs()[i], sum};
    }
    shared_.stats_full.arrive();
    shared_.stats_full.wait(work_tiles_ & 1);
    RowStats stats;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float2 even = rows[0][row_ + 8 * i];
      const float2 odd = rows[1][row_ + 8 * i];
      stats.max[i] = fmaxf(even.x, odd.x);
      stats.sum[i] = even.y * rebased(even.x, stats.max[i]) + odd.y * rebased(odd.x, stats.max[i]);
    }
    return stats;
  }

  const LatentParams& params_;
  PingpongShared& shared_;
  const int group_;
  const int warp_;  // of the group
  const int row_;   // of the block, the thread's first; the second stands 8 below it
  const int first_row_;
  unsigned phases_ = 0;  // of the stages' rounds
  unsigned work_tiles_ = 0;
};

}  // namespace quire::cuda::sm90::mla_decode
