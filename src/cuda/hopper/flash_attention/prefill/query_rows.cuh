// SPDX-License-Identifier: Apache-2.0
// What a consumer thread knows of its two query rows, and what it does to their scores before the
// softmax.
#pragma once

#include "cuda/hopper/flash_attention/prefill/schedule.cuh"
#include "cuda/hopper/flash_attention/prefill/softmax.cuh"

namespace quire::cuda::hopper {

template <PrefillConfig kConfig> struct QueryRows {
  int token[2];         // in the sequence; behind its end for rows that are not stored
  int head[2];
  KeyInterval keys[2];  // that the row sees
  KeyInterval all_see;  // keys that every row of the tile sees

  // `row`: the thread's first, in the tile; the second stands 8 below it.
  __device__ QueryRows(const PrefillParams& params, const PrefillTile& tile, int row) {
    const int heads_log2 = params.tile_heads_log2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = row + 8 * i;
      token[i] = tile.first_token + (at >> heads_log2);
      head[i] = (tile.head_tile << heads_log2) + (at & ((1 << heads_log2) - 1));
      keys[i] = params.mask.of(tile.cached + token[i], tile.num_keys());
    }
    const int last = tile.first_token + (kConfig.rows() >> heads_log2) - 1;
    all_see = {.first = params.mask.of(tile.cached + last, tile.num_keys()).first,
               .end = params.mask.of(tile.cached + tile.first_token, tile.num_keys()).end};
  }

  __device__ bool sees_all_of(int first_key) const {
    return first_key >= all_see.first && first_key + kConfig.block_keys <= all_see.end;
  }

  // Selects, never adds: what stands behind a sequence's end may be anything.
  __device__ void hide(float (&scores)[kConfig.block_keys / 2], int first_key,
                       std::uint32_t holes) const {
    const int column = first_key + 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int first = keys[i].first - column;
      const int end = keys[i].end - column;
#pragma unroll
      for (int j = 0; j < kConfig.block_keys / 8; ++j) {
        const bool has_page = (holes >> j & 1) == 0;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int key = 8 * j + e;
          float& score = scores[4 * j + 2 * i + e];
          score = has_page && key >= first && key < end ? score : -INFINITY;
        }
      }
    }
  }

  // Into log2 units. scale · q·k, capped, plus slope · (key - position).
  __device__ void modify(const PrefillParams& params, const PrefillTile& tile, int first_key,
                         float (&scores)[kConfig.block_keys / 2]) const {
    const PrefillScores& how = params.scores;
    const int column = first_key + 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float slope =
          how.alibi_slopes == nullptr ? 0.0F : how.alibi_slopes[head[i] * how.alibi_stride];
      const int distance = column - (tile.cached + token[i]);
#pragma unroll
      for (int j = 0; j < kConfig.block_keys / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = scores[4 * j + 2 * i + e];
          float s = score * how.scale;
          if (how.softcap > 0.0F) s = how.softcap * tanh_of(s / how.softcap);
          s = fmaf(slope, static_cast<float>(distance + 8 * j + e), s);
          score = s * kLog2e;
        }
      }
    }
  }

 private:
  // 1 - 2 / (1 + e^2x), to fp32's last bits: the instruction's own tanh is good to 11.
  __device__ static float tanh_of(float x) {
    return 1.0F - __fdividef(2.0F, 1.0F + exp2_approx(2.0F * kLog2e * x));
  }
};

}  // namespace quire::cuda::hopper
