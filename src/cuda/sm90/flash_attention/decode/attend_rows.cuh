// SPDX-License-Identifier: Apache-2.0
// What the two rows of a lane see, and what becomes of their scores.
#pragma once

#include "cuda/common/mma/warp_mma.cuh"
#include "cuda/common/softmax/softmax.cuh"
#include "cuda/common/split_kv/split_schedule.h"
#include "cuda/common/thread/thread.cuh"
#include "cuda/common/thread/warp_reduce.cuh"
#include "cuda/sm90/flash_attention/decode/combine.cuh"
#include "cuda/sm90/flash_attention/decode/params.h"
#include "cuda/sm90/flash_attention/decode/shared.cuh"

namespace quire::cuda::sm90::flash_attention {

// The query rows of a work tile, in the warp's columns, as A operands, held in registers.

template <DecodeConfig kConfig> struct QueryRows {
  static constexpr int kSteps = kConfig.warp_columns() / 16;
  static constexpr int kHalves = kConfig.halves();

  std::uint32_t words[kSteps][4];
  float factor[kHalves];  // that the numbers, and those of K, were divided by

  // Rows first_row + lane / 4 + 8 · half, columns from first_column on.
  __device__ void load(const DecodeShared<kConfig>& shared, int slot, int first_row,
                       int first_column) {
    int lane = static_cast<int>(threadIdx.x % 32);
    // Places are found anew for every work tile: kept, they would be spilled beside the scores' exchange.
    if constexpr (kConfig.column_warps > 1) lane = opaque(lane);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[step][i] = 0;
        if (i % 2 >= kHalves) continue;
        const int row = first_row + lane / 4 + 8 * (i % 2);
        const int column =
            first_column + 16 * step + query_column<kConfig.dtype>(lane % 4, i / 2 * 2);
        const int split = (column % 64 / 8) ^ (row % 8);
        words[step][i] = *reinterpret_cast<const std::uint32_t*>(
            &shared.queries[slot][column / 64][row * 128 + split * 16 + column % 8 * 2]);
      }
    }
#pragma unroll
    for (int half = 0; half < kHalves; ++half) factor[half] = 1.0F;
  }

  // bf16 to f16. A power of two brings the row's largest number near the top of f16's range: what is
  // lost is smaller than it by 2^-29 or more.
  __device__ void convert_from_bf16() {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const float largest = row_magnitude(half);
      const int exponent = static_cast<int>(__float_as_uint(largest) >> 23);
      const int shift = exponent == 255 ? 127 : min(254 + 14 - exponent, 240);
      const float multiplier = __uint_as_float(static_cast<std::uint32_t>(shift) << 23);
      factor[half] = __uint_as_float(static_cast<std::uint32_t>(254 - shift) << 23);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int i = half; i < 4; i += 2) {
          words[step][i] = WarpProduct<DType::f16>::pack(low_of(words[step][i]) * multiplier,
                                                         high_of(words[step][i]) * multiplier);
        }
      }
    }
  }

  __device__ void scale_by(float key_scale) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) factor[half] *= key_scale;
  }

 private:
  __device__ static float low_of(std::uint32_t pair) {
    return __uint_as_float(pair << 16);
  }
  __device__ static float high_of(std::uint32_t pair) {
    return __uint_as_float(pair & 0xffff0000);
  }

  __device__ float row_magnitude(int half) const {
    float largest = 0.0F;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = half; i < 4; i += 2) {
        largest =
            fmaxf(largest, fmaxf(fabsf(low_of(words[step][i])), fabsf(high_of(words[step][i]))));
      }
    }
    return quad_max(largest);
  }
};

// A warp's running softmax over its keys: 16 rows at most, the warp's columns of V. The sums are transposed
// (columns of V × rows), so that 8 rows fill a product: scores as the first product leaves them are
// then operands of the second.

// Of 16 rows × 16 keys: rows lane / 4 + 8 · (i / 2), keys 8n + 2 · (lane % 4) + i % 2.
struct ScoreTile {
  float at[2][4];
};

template <DecodeConfig kConfig> struct RowSums {
  static constexpr int kHalves = kConfig.halves();
  static constexpr int kGroups = kConfig.warp_columns() / 16;
  using Product = WarpProduct<kConfig.dtype>;

  float max[kHalves];
  float sum[kHalves];  // of this lane's keys alone, until a work tile ends
  // [i]: column lane / 4 + 8 · (i / 2) of the group (value_column), row 2 · (lane % 4) + i % 2.
  float values[kGroups][kHalves][4];

  __device__ void clear() {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      max[half] = kNoKey;
      sum[half] = 0.0F;
    }
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int i = 0; i < 4 * kHalves; ++i) values[group][i / 4][i % 4] = 0.0F;
    }
  }

  // Scores in powers of two become weights, B operands [16 keys × 8 rows]; the sums so far follow the
  // new maximum.
  __device__ void weigh(const ScoreTile& scores, std::uint32_t (&weights)[kHalves][2]) {
    float change[kHalves];
    bool has_changed = false;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const auto score = [&](int n, int i) { return scores.at[n][2 * half + i]; };
      const float top =
          fmaxf(max[half],
                quad_max(fmaxf(fmaxf(score(0, 0), score(0, 1)), fmaxf(score(1, 0), score(1, 1)))));
      const float base = top == kNoKey ? 0.0F : top;
      change[half] = exp2_approx(max[half] - base);
      has_changed |= top > max[half];
      max[half] = top;
      const float w00 = exp2_approx(score(0, 0) - base), w01 = exp2_approx(score(0, 1) - base);
      const float w10 = exp2_approx(score(1, 0) - base), w11 = exp2_approx(score(1, 1) - base);
      sum[half] = sum[half] * change[half] + ((w00 + w01) + (w10 + w11));
      weights[half][0] = Product::pack(w00, w01);
      weights[half][1] = Product::pack(w10, w11);
    }
    if (__any_sync(0xffffffff, has_changed)) rescale(change);
  }

  // values += Vᵀ [warp_columns × 16 keys] · weights
  __device__ void add(const std::uint32_t (&weights)[kHalves][2], const std::byte* v) {
#pragma unroll
    for (int step = 0; step < kGroups / 2; ++step) {
      std::uint32_t operands[2][4];
      load_value_operands<kConfig.dtype>(v, kConfig.keys() * 128, step, operands);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          Product::add(values[2 * step + k][half], operands[k], weights[half][0], weights[half][1]);
        }
      }
    }
  }

 private:
  // A row's change is known to the quad that holds its scores; its sums lie elsewhere.
  __device__ void rescale(const float (&change)[kHalves]) {
    const int first_lane = static_cast<int>(threadIdx.x % 4) * 8;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const float even = __shfl_sync(0xffffffff, change[half], first_lane);
      const float odd = __shfl_sync(0xffffffff, change[half], first_lane + 4);
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
#pragma unroll
        for (int i = 0; i < 4; ++i) values[group][half][i] *= i % 2 == 0 ? even : odd;
      }
    }
  }
};

template <DecodeConfig kConfig> class DecodeRowMask {
 public:
  static constexpr int kHalves = kConfig.halves();

  __device__ DecodeRowMask(const DecodeParams& params, const DecodeWorkTile& work_tile,
                           int first_row)
      : params_(params), work_tile_(work_tile) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      // Rows past the last in use see what that one sees; nobody stores them.
      const int row = min(first_row + lane / 4 + 8 * half, work_tile.rows - 1);
      token_[half] = row / params.batch.group;
      slope_[half] = slope(work_tile.kv_head * params.batch.group + row % params.batch.group);
      seen_[half] = params.batch.visible.of(work_tile.position + token_[half], work_tile.num_keys);
      if (params.intervals.are_given()) {
        seen_[half] = params.intervals.narrow(seen_[half], work_tile.first_token + token_[half]);
      }
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
            static_cast<float>(first_key + key_offset(0) - work_tile_.position - token_[half]);
        change_row(scores, half, [&](float score, float key) {
          return fmaf(slope_[half], distance + key, score);
        });
      }
    }
  }

  // Hides what a row does not see. `mapped`: a bit for each of the warp's keys.
  __device__ void hide(ScoreTile& scores, unsigned mapped, int first_key) const {
    hide_outside(scores, mapped, first_key);
    const bool reaches_tree = first_key + DecodeConfig::kWarpKeys > work_tile_.cached;
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
      const std::uint8_t* row =
          tree.bits + (work_tile_.first_token + token_[half]) * tree.token_stride;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = first_key + key_offset(i) - work_tile_.cached;
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
  const DecodeWorkTile& work_tile_;
  int token_[kHalves];
  float slope_[kHalves];  // of ALiBi, in powers of two
  KeyInterval seen_[kHalves];
};

}  // namespace quire::cuda::sm90::flash_attention
