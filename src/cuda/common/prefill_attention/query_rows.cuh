// SPDX-License-Identifier: Apache-2.0
// What a consumer thread knows of its query rows, and what it does to their scores before the
// softmax.
#pragma once

#include "cuda/common/prefill_attention/schedule.cuh"
#include "cuda/common/softmax/softmax.cuh"

namespace quire::cuda {

// One of the thread's rows.
struct QueryRow {
  int token;  // in the sequence; behind its end for a row that is not stored
  int head;
  KeyInterval keys;  // that it sees
};

// Keys that a query at `position` sees.
__device__ inline KeyInterval keys_of(const PrefillParams& params, const PrefillTile& tile,
                                      int position) {
  KeyInterval keys = params.mask.of(position, tile.end_key);
  keys.first = keys.first > tile.first_key ? keys.first : tile.first_key;
  return keys;
}

// `row`: in the tile.
__device__ inline QueryRow query_row(const PrefillParams& params, const PrefillTile& tile,
                                     int row) {
  const int heads_log2 = params.tile_heads_log2;
  const int token = tile.first_token + (row >> heads_log2);
  return {.token = token,
          .head = (tile.head_tile << heads_log2) + (row & ((1 << heads_log2) - 1)),
          .keys = keys_of(params, tile, tile.position + token)};
}

// The same of a row of the tile, whose token may bring bounds of its own. Rows behind the sequence's last token see what
// that one sees; nobody stores them.
template <PrefillConfig kConfig>
__device__ inline KeyInterval keys_of_row(const PrefillParams& params, const PrefillTile& tile,
                                          int row) {
  const KeyInterval keys = query_row(params, tile, row).keys;
  if constexpr (kConfig.takes_intervals()) {
    if (params.intervals.are_given()) {
      const int token = tile.first_token + (row >> params.tile_heads_log2);
      return params.intervals.narrow(keys, tile.first_row + min(token, tile.tokens - 1));
    }
  }
  return keys;
}

// Keys that every row of the tile sees; none where tokens have bounds of their own, which nobody has compared.
template <PrefillConfig kConfig>
__device__ inline KeyInterval seen_by_all(const PrefillParams& params, const PrefillTile& tile) {
  if constexpr (kConfig.takes_intervals()) {
    if (params.intervals.are_given()) return {.first = tile.end_key, .end = 0};
  }
  const int first = tile.position + tile.first_token;
  const int last = first + (kConfig.rows() >> params.tile_heads_log2) - 1;
  return {.first = keys_of(params, tile, last).first, .end = keys_of(params, tile, first).end};
}

// A thread has two neighbours of every eight keys of a row. As bits: 2g + e for key 8g + e, counted from
// the thread's first one. A row's scores are chosen by such bits in half the instructions that it takes
// to compare each key: seven predicates are set at once.
// Those below `count`.
__device__ inline std::uint32_t keys_below(int count) {
  const int whole = max(count, 0);
  return __funnelshift_lc(0xffffffff, 0, 2 * (whole / 8) + min(whole % 8, 2));
}
// Those of the groups of eight that `groups` has bits for.
__device__ inline std::uint32_t keys_of_groups(std::uint32_t groups) {
  std::uint32_t bits = groups & 0xffff;
  bits = (bits | bits << 8) & 0x00ff00ff;
  bits = (bits | bits << 4) & 0x0f0f0f0f;
  bits = (bits | bits << 2) & 0x33333333;
  bits = (bits | bits << 1) & 0x55555555;
  return bits | bits << 1;
}

// Scores of keys that a row does not see, and of those where bit g of `holes` says that keys
// 8g … 8g + 7 are not there. Selects, never adds: what stands behind a sequence's end may be anything.
// `row`: the thread's first; the second stands 8 below it.
template <PrefillConfig kConfig, int kScores>
__device__ inline void hide(const PrefillParams& params, const PrefillTile& tile, int row,
                            int first_key, std::uint32_t holes, float (&scores)[kScores]) {
  const int column = first_key + 2 * static_cast<int>(threadIdx.x % 4);
  const std::uint32_t there = ~keys_of_groups(holes);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const KeyInterval keys = keys_of_row<kConfig>(params, tile, row + 8 * i);
    const std::uint32_t seen =
        there & keys_below(keys.end - column) & ~keys_below(keys.first - column);
#pragma unroll
    for (int j = 0; j < kScores / 4; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = scores[4 * j + 2 * i + e];
        score = (seen & 1U << (2 * j + e)) != 0 ? score : -INFINITY;
      }
    }
  }
}

// Sets every score of the thread's row i from itself and its key's number, counted from the first.
template <int kScores, typename Change>
__device__ inline void change_row(float (&scores)[kScores], int i, const Change& change) {
#pragma unroll
  for (int j = 0; j < kScores / 4; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float& score = scores[4 * j + 2 * i + e];
      score = change(score, static_cast<float>(8 * j + e));
    }
  }
}

// Into log2 units: scale · q·k, capped, plus slope · (key - position). What is multiplied is multiplied
// once for the row.
template <int kScores>
__device__ inline void modify(const PrefillParams& params, const PrefillTile& tile, int row,
                              int first_key, const float (&factor)[2], float (&scores)[kScores]) {
  const ScoreRules& how = params.scores;
  const int column = first_key + 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float scale = how.scale * factor[i] * kLog2e;
    if (how.softcap > 0.0F) {
      const Softcap cap(how.softcap, __fdividef(2.0F * scale, how.softcap));
      change_row(scores, i, [&](float score, float) { return cap(score); });
    } else {
      change_row(scores, i, [&](float score, float) { return scale * score; });
    }
    if (how.alibi_slopes != nullptr) {
      const QueryRow at = query_row(params, tile, row + 8 * i);
      const float slope = how.alibi_slopes[at.head * how.alibi_stride] * kLog2e;
      const auto distance = static_cast<float>(column - (tile.position + at.token));
      change_row(scores, i,
                 [&](float score, float key) { return fmaf(slope, distance + key, score); });
    }
  }
}

// A softmax whose reference, which all weights of a row are relative to, follows the row's maximum
// lazily: it rises where a score stands so far above it that its weight would leave the products'
// range, and not before. Most blocks then need no exchange between the threads of a row, and sums
// stay as they are. Whether a row's reference rises depends on that row alone.

// A score at the reference weighs 2^kReferenceLog2, one kSlack powers of two above it is the highest
// that is not raised to. Their sum is what the product's dtype holds (f16 65504, e4m3 448); bf16 and
// fp32 sums have room for more.
template <DType kDType> inline constexpr float kReferenceLog2 = 0.0F;
template <> inline constexpr float kReferenceLog2<DType::f16> = 8.0F;
template <> inline constexpr float kReferenceLog2<DType::fp8_e4m3> = 6.0F;
template <DType kDType> inline constexpr float kSlack = 8.0F;
template <> inline constexpr float kSlack<DType::f16> = 7.9F;
template <> inline constexpr float kSlack<DType::fp8_e4m3> = 2.8F;
// Whether rows with far references (is_near()) are right. Not with fp8 products: the code beside them costs 3 to 5 % there.
template <DType kDType> inline constexpr bool kTakesFarScores = kDType != DType::fp8_e4m3;

// `max` of RowSoftmax is the reference: in units of to_log2, -inf in a row that has seen no key.
struct LazySoftmax : RowSoftmax {
  float limit[2] = {-INFINITY, -INFINITY};  // the highest score that leaves the reference as it is

  // 2^(s · to_log2 - offset) is a score's weight.
  template <DType kDType> __device__ float offset(float to_log2, int i) const {
    if constexpr (!kTakesFarScores<kDType>) {
      return (max[i] == -INFINITY ? 0.0F : max[i]) * to_log2 - kReferenceLog2<kDType>;
    }
    const float reference = max[i] * to_log2;
    return (is_near(reference) ? reference : 0.0F) - kReferenceLog2<kDType>;
  }

  // As rise(), of the first block: nothing is summed yet.
  template <DType kDType, int kScores>
  __device__ void start(float (&scores)[kScores], const float (&to_log2)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float highest = highest_of(scores, i);
      if (highest > -INFINITY) {
        max[i] = highest;
        limit[i] = limit_of<kDType>(highest, to_log2[i]);
      }
    }
    subtract_far_references<kDType>(scores, to_log2);
  }

  // Takes one more block's scores in. True where a row's reference rose, for all of the warp: what
  // was summed before is to be multiplied by `keep`, which is set only then.
  template <DType kDType, int kScores>
  __device__ bool rise(float (&scores)[kScores], const float (&to_log2)[2], float (&keep)[2]) {
    int highest[2];
    highest_bits(scores, highest);
    // Bits of floats compare as integers unless both are negative: then they are looked at again.
    const int limits[2] = {__float_as_int(limit[0]), __float_as_int(limit[1])};
    const bool may_rise = highest[0] > limits[0] || highest[1] > limits[1] ||
                          ((highest[0] & limits[0]) | (highest[1] & limits[1])) < 0;
    if (!__any_sync(0xffffffff, may_rise)) return false;
#pragma unroll
    for (int i = 0; i < 2; ++i) raise<kDType>(highest_of(scores, i), to_log2[i], i, keep[i]);
    subtract_far_references<kDType>(scores, to_log2);
    return true;
  }

 private:
  template <DType kDType> __device__ void raise(float highest, float to_log2, int i, float& keep) {
    const bool rises = highest > (kTakesFarScores<kDType> ? fmaxf(limit[i], max[i]) : limit[i]);
    keep = rises ? exp2_approx((max[i] - highest) * to_log2) : 1.0F;
    max[i] = rises ? highest : max[i];
    limit[i] = rises ? limit_of<kDType>(highest, to_log2) : limit[i];
    sum[i] *= keep;
  }

  // Of a far reference (is_near()) every score is beyond the limit: each block comes through rise().
  template <DType kDType> __device__ static float limit_of(float reference, float to_log2) {
    const bool takes_slack = !kTakesFarScores<kDType> || is_near(reference * to_log2);
    return takes_slack ? reference + __fdividef(kSlack<kDType>, to_log2) : -INFINITY;
  }

  // What the exponentials would take off with an error that is too large.
  template <DType kDType, int kScores>
  __device__ void subtract_far_references(float (&scores)[kScores],
                                          const float (&to_log2)[2]) const {
    if constexpr (!kTakesFarScores<kDType>) return;
    const bool is_far[2] = {max[0] != -INFINITY && !is_near(max[0] * to_log2[0]),
                            max[1] != -INFINITY && !is_near(max[1] * to_log2[1])};
    if (!__any_sync(0xffffffff, is_far[0] || is_far[1])) return;
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
      if (is_far[j / 2 % 2]) scores[j] -= max[j / 2 % 2];
    }
  }
};

// A row's reference, in which form it no longer needs to_log2.
__device__ inline void into_log2_units(RowSoftmax& softmax, const float (&to_log2)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (softmax.max[i] != -INFINITY) softmax.max[i] *= to_log2[i];
  }
}

}  // namespace quire::cuda
