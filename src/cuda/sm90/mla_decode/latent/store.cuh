// SPDX-License-Identifier: Apache-2.0
// A finished item's rows, from registers: to the output, or as a piece to the workspace.
#pragma once

#include "cuda/common/prefill_attention/store_rows.cuh"
#include "cuda/sm90/mla_decode/latent/row_stats.cuh"
#include "cuda/sm90/mla_decode/latent/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

// Which part of an item's rows a thread stores.
struct StorePlace {
  int row;            // the thread's first; the second stands 8 below it
  int column;         // the warpgroup's first
  bool stores_stats;  // one of those that have the same rows
};

template <int kSums>
__device__ inline void store_piece(const LatentPieces& pieces, const LatentItem& item,
                                   const StorePlace& place, const RowStats& stats,
                                   const float (&sums)[kSums]) {
  const auto lane = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = place.row + 8 * i;
    if (row >= item.rows) continue;
    const std::int64_t at = item.slot * pieces.rows + row;
    auto* out = reinterpret_cast<float2*>(pieces.sums + at * LatentConfig::kLatent + place.column);
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j) {
      out[4 * j + lane] = {sums[4 * j + 2 * i], sums[4 * j + 2 * i + 1]};
    }
    if (place.stores_stats && lane == 0) pieces.stats[at] = {stats.max[i], stats.sum[i]};
  }
}

template <DType kDType, int kSums>
__device__ inline void store_output(const LatentParams& params, const LatentItem& item,
                                    const StorePlace& place, const RowStats& stats,
                                    const float (&sums)[kSums]) {
  const LatentOutputs& outputs = params.outputs;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = place.row + 8 * i;
    const bool is_stored = row < item.rows;
    const std::int64_t token = item.first_token + row / params.heads;
    const int head = row % params.heads;
    const RowEnd end = is_stored ? end_row(outputs, head, stats.max[i], stats.sum[i]) : RowEnd{};
    if (outputs.lse != nullptr && is_stored && place.stores_stats && threadIdx.x % 4 == 0) {
      outputs.lse[token * outputs.lse_token_stride + head * outputs.lse_head_stride] = end.lse;
    }
    std::byte* out = outputs.out + token * outputs.token_stride_bytes +
                     head * outputs.head_stride_bytes + bytes_for(kDType, place.column);
    store_row<kDType>(sums, i, end.factor, is_stored ? out : nullptr);
  }
}

template <DType kDType, int kSums>
__device__ inline void store_item(const LatentParams& params, const LatentItem& item,
                                  const StorePlace& place, const RowStats& stats,
                                  const float (&sums)[kSums]) {
  if (item.slot >= 0) {
    store_piece(params.pieces, item, place, stats, sums);
  } else {
    store_output<kDType>(params, item, place, stats, sums);
  }
}

}  // namespace quire::cuda::sm90::mla_decode
