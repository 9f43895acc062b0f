// SPDX-License-Identifier: Apache-2.0
// What a consumer thread knows of its query rows, and what it does to their scores before the
// softmax.
#pragma once

#include "cuda/hopper/flash_attention/prefill/schedule.cuh"
#include "cuda/hopper/flash_attention/prefill/softmax.cuh"

namespace quire::cuda::hopper {

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

// Keys that every row of the tile sees.
template <PrefillConfig kConfig>
__device__ inline KeyInterval seen_by_all(const PrefillParams& params, const PrefillTile& tile) {
  const int first = tile.position + tile.first_token;
  const int last = first + (kConfig.rows() >> params.tile_heads_log2) - 1;
  return {.first = keys_of(params, tile, last).first, .end = keys_of(params, tile, first).end};
}

// Selects, never adds: what stands behind a sequence's end may be anything. `row`: the thread's
// first; the second stands 8 below it.
template <int kScores>
__device__ inline void hide_behind(const PrefillParams& params, const PrefillTile& tile, int row,
                                   int first_key, float (&scores)[kScores]) {
  const int column = first_key + 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int end = query_row(params, tile, row + 8 * i).keys.end - column;
#pragma unroll
    for (int j = 0; j < kScores / 4; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = scores[4 * j + 2 * i + e];
        score = 8 * j + e < end ? score : -INFINITY;
      }
    }
  }
}

// Also before the first key that a row sees, and where bit g of `holes` says that keys
// 8g … 8g + 7 are not there.
template <int kScores>
__device__ inline void hide_around(const PrefillParams& params, const PrefillTile& tile, int row,
                                   int first_key, std::uint32_t holes, float (&scores)[kScores]) {
  const int column = first_key + 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const KeyInterval keys = query_row(params, tile, row + 8 * i).keys;
    const int first = keys.first - column;
    const int end = keys.end - column;
#pragma unroll
    for (int j = 0; j < kScores / 4; ++j) {
      const bool is_there = (holes >> j & 1) == 0;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int key = 8 * j + e;
        float& score = scores[4 * j + 2 * i + e];
        score = is_there && key >= first && key < end ? score : -INFINITY;
      }
    }
  }
}

// 1 - 2 / (1 + e^2x), to fp32's last bits: the instruction's own tanh is good to 11.
__device__ inline float tanh_of(float x) {
  return 1.0F - __fdividef(2.0F, 1.0F + exp2_approx(2.0F * kLog2e * x));
}

// Into log2 units: scale · q·k, capped, plus slope · (key - position).
template <int kScores>
__device__ inline void modify(const PrefillParams& params, const PrefillTile& tile, int row,
                              int first_key, const float (&factor)[2], float (&scores)[kScores]) {
  const ScoreRules& how = params.scores;
  const int column = first_key + 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const QueryRow at = query_row(params, tile, row + 8 * i);
    const float slope =
        how.alibi_slopes == nullptr ? 0.0F : how.alibi_slopes[at.head * how.alibi_stride];
    const int distance = column - (tile.position + at.token);
#pragma unroll
    for (int j = 0; j < kScores / 4; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = scores[4 * j + 2 * i + e];
        float s = score * (how.scale * factor[i]);
        if (how.softcap > 0.0F) s = how.softcap * tanh_of(s / how.softcap);
        s = fmaf(slope, static_cast<float>(distance + 8 * j + e), s);
        score = s * kLog2e;
      }
    }
  }
}

}  // namespace quire::cuda::hopper
