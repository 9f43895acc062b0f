// SPDX-License-Identifier: Apache-2.0
// From a row's sums to its output and LSE, the sink in the denominator.
#pragma once

#include "cuda/common/general_attention/attend_tile.cuh"
#include "cuda/common/rows/vec8.cuh"
#include "cuda/common/softmax/attend_output.h"

namespace quire::cuda {

// out = sums · factor / denominator.
struct RowFinish {
  float factor;
  float denominator;
  float lse;
};

__device__ inline RowFinish finish_row(const RowState& state, const float* sinks, int head) {
  const float sink = sinks == nullptr ? -INFINITY : sinks[head];
  // No key, or scores of -inf only: the sink has no value, whatever it is. A NaN score is in the sum,
  // whatever the maximum.
  if (state.maximum == -INFINITY && state.sum == 0.0f) {
    return {.factor = 0.0f, .denominator = 1.0f, .lse = sink};
  }
  const float maximum = fmaxf(state.maximum, sink);
  const float base = maximum == -INFINITY ? 0.0f : maximum;
  const float factor = expf(state.maximum - base);
  const float sum = state.sum * (state.maximum == -INFINITY ? 1.0f : factor);
  const float denominator = sum + (sinks == nullptr ? 0.0f : expf(sink - base));
  return {.factor = factor, .denominator = denominator, .lse = base + logf(denominator)};
}

template <typename Tile, typename Source>
__device__ void store_rows(const Tile& tile, const Source& source, const AttendOutput& output) {
  constexpr int kRows = sizeof(tile.states) / sizeof(RowState);
  constexpr int kVectors = sizeof(tile.sums[0]) / sizeof(tile.sums[0][0]);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (Tile::row_of(i) >= source.num_rows()) continue;
    const auto row = source.row(Tile::row_of(i));
    const RowFinish finish = finish_row(tile.states[i], output.sinks, row.head);
    std::byte* out =
        output.out + row.token * output.token_bytes + std::int64_t{row.head} * output.head_bytes;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int column = tile.value_column(v) + c;
        if (column >= output.width) continue;
        // Values that weigh nothing may be infinite.
        const float sum = finish.factor == 0.0f ? 0.0f : tile.sums[i][v][c];
        store_one(out, output.dtype, column, sum * finish.factor / finish.denominator);
      }
    }
    if (output.lse != nullptr && tile.value_column(0) == 0) {
      output.lse[row.token * output.lse_token_stride + row.head * output.lse_head_stride] =
          finish.lse;
    }
  }
}

}  // namespace quire::cuda
