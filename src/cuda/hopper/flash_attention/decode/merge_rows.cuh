// SPDX-License-Identifier: Apache-2.0
// Pieces of an item become rows of the output, in the order of the keys. A warp per row.
#pragma once

#include "cuda/hopper/flash_attention/decode/find_work.cuh"
#include "cuda/hopper/flash_attention/decode/merge_pieces.h"
#include "cuda/hopper/flash_attention/decode/store_rows.cuh"

namespace quire::cuda::hopper {

struct MergeItem {
  int pieces = 0;  // below 2: nothing to merge
  int kv_head = 0;
  int tile = 0;
  std::int64_t first_slot = 0;   // of piece 0
  std::int64_t second_slot = 0;  // of piece 1
  int slot_step = 1;             // from there on
  int first_token = 0;           // row of q of row 0
  int tokens = 0;

  __device__ std::int64_t slot(int piece) const {
    return piece == 0 ? first_slot : second_slot + std::int64_t{piece - 1} * slot_step;
  }
};

__device__ inline void set_tokens(const DecodeBatch& batch, const SequenceWork& work,
                                  MergeItem& item) {
  const int skipped = item.tile * batch.tile_tokens;
  item.first_token = work.first_token + skipped;
  item.tokens = min(work.tokens - skipped, batch.tile_tokens);
}

// A row's sums over the pieces so far: four columns.
struct MergedRow {
  float max = kNoKey;
  float sum = 0.0F;
  float4 values{};

  __device__ void rebase_to(float top) {
    const float factor = rebase(max, top);
    sum *= factor;
    values = scaled(values, factor);
    max = top;
  }
};

// Columns [column, column + 4) of a row, kLoadsAhead pieces on their way at a time. Past L1: other
// thread blocks wrote them.
__device__ inline MergedRow merge_columns(const DecodePieces& pieces, const MergeShape& shape,
                                          const MergeItem& item, int row, int column) {
  constexpr int kLoadsAhead = 8;
  MergedRow merged;
  for (int first = 0; first < item.pieces; first += kLoadsAhead) {
    float2 stats[kLoadsAhead];
    float4 values[kLoadsAhead];
#pragma unroll
    for (int i = 0; i < kLoadsAhead; ++i) {
      const std::int64_t place = item.slot(min(first + i, item.pieces - 1)) * shape.rows + row;
      stats[i] = __ldcg(pieces.stats + place);
      values[i] =
          __ldcg(reinterpret_cast<const float4*>(pieces.sums + place * shape.dims + column));
    }
    float top = merged.max;
#pragma unroll
    for (int i = 0; i < kLoadsAhead; ++i) top = fmaxf(top, stats[i].x);
    merged.rebase_to(top);
#pragma unroll
    for (int i = 0; i < kLoadsAhead; ++i) {
      if (first + i >= item.pieces) break;
      const float weight = rebase(stats[i].x, top);
      merged.sum += stats[i].y * weight;
      add_scaled(merged.values, values[i], weight);
    }
  }
  return merged;
}

// By `warps` warps, of which this is number `warp`.
__device__ inline void merge_rows(const DecodeParams& params, const MergeShape& shape,
                                  const MergeItem& item, int warp, int warps) {
  const int group = params.batch.group;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int row = warp; row < item.tokens * group; row += warps) {
    const int head = item.kv_head * group + row % group;
    const std::int64_t token = item.first_token + row / group;
    for (int column = lane * 4; column < params.outputs.value_dim; column += 128) {
      const MergedRow merged = merge_columns(params.pieces, shape, item, row, column);
      const FinishedRow finished = finish_row(params.scores, head, merged.max, merged.sum);
      store_output(params.outputs, token, head, column, scaled(merged.values, finished.factor));
      if (column == 0) store_lse(params.outputs, token, head, finished.lse);
    }
  }
}

}  // namespace quire::cuda::hopper
