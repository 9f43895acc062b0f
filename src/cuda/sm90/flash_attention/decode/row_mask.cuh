// SPDX-License-Identifier: Apache-2.0
// What the two rows of a lane see, and what becomes of their scores.
#pragma once

#include "cuda/common/softmax/softcap.cuh"
#include "cuda/common/split_kv/split_schedule.h"
#include "cuda/sm90/flash_attention/decode/row_sums.cuh"

namespace quire::cuda::sm90::flash_attention {

template <DecodeConfig kConfig> class DecodeRowMask {
 public:
  static constexpr int kHalves = kConfig.halves();

  __device__ DecodeRowMask(const DecodeParams& params, const DecodeItem& item, int first_row)
      : params_(params), item_(item) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      // Rows past the last in use see what that one sees; nobody stores them.
      const int row = min(first_row + lane / 4 + 8 * half, item.rows - 1);
      token_[half] = row / params.batch.group;
      slope_[half] = slope(item.kv_head * params.batch.group + row % params.batch.group);
      seen_[half] = params.batch.visible.of(item.position + token_[half], item.num_keys);
    }
  }

  // Products of q and k to scores in powers of two. `factor` undoes what the queries were divided by.
  __device__ void scale(ScoreTile& scores, const float (&factor)[kHalves], int first_key) const {
    const ScoreRules& how = params_.scores;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const float scale = how.scale * factor[half] * kLog2e;
      if (how.softcap > 0.0F) {
        // For four scores of a lane: a division is five instructions, a reciprocal one.
        const Softcap cap(how.softcap, 2.0F * scale * reciprocal(how.softcap));
        change_row(scores, half, [&](float score, float) { return cap(score); });
      } else {
        change_row(scores, half, [&](float score, float) { return scale * score; });
      }
      if (how.alibi_slopes != nullptr) {
        const auto distance =
            static_cast<float>(first_key + key_offset(0) - item_.position - token_[half]);
        change_row(scores, half, [&](float score, float key) {
          return fmaf(slope_[half], distance + key, score);
        });
      }
    }
  }

  // Hides what a row does not see. `mapped`: a bit for each of the warp's keys.
  __device__ void hide(ScoreTile& scores, unsigned mapped, int first_key) const {
    hide_outside(scores, mapped, first_key);
    const bool reaches_tree = first_key + DecodeConfig::kWarpKeys > item_.cached;
    if (params_.tree.bits != nullptr && reaches_tree) hide_branches(scores, first_key);
  }

 private:
  __device__ float slope(int head) const {
    const ScoreRules& how = params_.scores;
    return how.alibi_slopes ? how.alibi_slopes[head * how.alibi_stride] * kLog2e : 0.0F;
  }

  __device__ void hide_outside(ScoreTile& scores, unsigned mapped, int first_key) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = first_key + key_offset(i);
      const bool is_mapped = (mapped >> key_offset(i) & 1) != 0;
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        const bool is_seen = is_mapped && key >= seen_[half].first && key < seen_[half].end;
        if (!is_seen) scores.at[i / 2][2 * half + i % 2] = kNoKey;
      }
    }
  }

  // New keys whose bit is not set in the row's token.
  __device__ void hide_branches(ScoreTile& scores, int first_key) const {
    const DecodeTree& tree = params_.tree;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const std::uint8_t* row = tree.bits + (item_.first_token + token_[half]) * tree.token_stride;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = first_key + key_offset(i) - item_.cached;
        const bool is_seen = column < 0 || (column < tree.columns && row[column] != 0);
        if (!is_seen) scores.at[i / 2][2 * half + i % 2] = kNoKey;
      }
    }
  }

  __device__ static int key_offset(int i) {
    return i / 2 * 8 + static_cast<int>(threadIdx.x % 4) * 2 + i % 2;
  }

  // Sets every score of a row from itself and its key's number, counted from the lane's first.
  template <typename Change>
  __device__ static void change_row(ScoreTile& scores, int half, const Change& change) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& score = scores.at[i / 2][2 * half + i % 2];
      score = change(score, static_cast<float>(i / 2 * 8 + i % 2));
    }
  }

  const DecodeParams& params_;
  const DecodeItem& item_;
  int token_[kHalves];
  float slope_[kHalves];  // of ALiBi, in powers of two
  KeyInterval seen_[kHalves];
};

}  // namespace quire::cuda::sm90::flash_attention
