// SPDX-License-Identifier: Apache-2.0
// The end of an item: the sums of the warps, each over its own keys, become one row; that goes to the
// output, or to the workspace if the item has other pieces.
#pragma once

#include <cutlass/arch/barrier.h>

#include "cuda/sm90/flash_attention/decode/join_pieces.cuh"
#include "cuda/sm90/flash_attention/decode/row_sums.cuh"

namespace quire::cuda::sm90::flash_attention {

template <DecodeConfig kConfig>
__device__ void stage_stats(DecodeShared<kConfig>& shared, const RowSums<kConfig>& sums, int warp) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int half = 0; half < kConfig.halves(); ++half) {
    const float sum = quad_sum(sums.sum[half]);
    if (lane % 4 == 0) shared.stats[warp][lane / 4 + 8 * half] = {sums.max[half], sum};
  }
}

template <DecodeConfig kConfig>
__device__ void stage_sums(DecodeShared<kConfig>& shared, const RowSums<kConfig>& sums, int warp) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int group = 0; group < kConfig.dims() / 16; ++group) {
#pragma unroll
    for (int half = 0; half < kConfig.halves(); ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 8 * half + lane % 4 * 2 + i % 2;
        const int column = value_column<kConfig.dtype>(group, lane / 4, i / 2);
        shared.sums[warp][row][column] = sums.values[group][half][i];
      }
    }
  }
}

// A row's sums over all keys of the piece: four columns.
struct PieceRow {
  float max = kNoKey;
  float sum = 0.0F;
  float4 values{};
};

template <DecodeConfig kConfig>
__device__ PieceRow join_warps(const DecodeShared<kConfig>& shared, int row, int column) {
  constexpr int kWarps = kConfig.key_warps();
  const int first = kConfig.row_sets() > 1 ? row / DecodeConfig::kTileRows * kWarps : 0;
  const int warp_row = row % DecodeConfig::kTileRows;
  PieceRow joined;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    joined.max = fmaxf(joined.max, shared.stats[first + warp][warp_row].x);
  }
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    const float2 stats = shared.stats[first + warp][warp_row];
    const float weight = rebased(stats.x, joined.max);
    joined.sum += stats.y * weight;
    add_scaled(joined.values,
               *reinterpret_cast<const float4*>(&shared.sums[first + warp][warp_row][column]),
               weight);
  }
  return joined;
}

// Columns [column, column + 4) of a row to where they go.
template <DecodeConfig kConfig>
__device__ void store_joined(const DecodeParams& params, const DecodeItem& item, int row,
                             int column, const PieceRow& joined) {
  if (item.slot >= 0) {
    const std::int64_t place = item.slot * kConfig.rows + row;
    *reinterpret_cast<float4*>(params.pieces.sums + place * kConfig.dims() + column) =
        joined.values;
    if (column == 0) params.pieces.stats[place] = {joined.max, joined.sum};
    return;
  }
  const int head = item.kv_head * params.batch.group + row % params.batch.group;
  const std::int64_t token = item.first_token + row / params.batch.group;
  const RowEnd end = end_row(params.scores, head, joined.max, joined.sum);
  const float factor = end.factor * params.scales.of_values(item.kv_head);
  store_output(params.outputs, token, head, column, scaled(joined.values, factor));
  if (column == 0) store_lse(params.outputs, token, head, end.lse);
}

// `warp` is the warp's place in the order of sums; `phase` turns with every item. One round for all
// columns, and the staging is waited for where it is needed again: with two rounds of 64 columns, each
// between two barriers, 128 sequences of 1024 keys in e4m3 took 87 µs instead of 83.
template <DecodeConfig kConfig>
__device__ void finish_item(const DecodeParams& params, DecodeShared<kConfig>& shared,
                            const DecodeItem& item, const RowSums<kConfig>& sums, int warp,
                            std::uint32_t phase) {
  constexpr int kVectors = kConfig.dims() / 4;
  constexpr int kBarrier = 1;
  shared.sums_read.wait(phase ^ 1);
  stage_stats(shared, sums, warp);
  stage_sums(shared, sums, warp);
  cutlass::arch::NamedBarrier::sync(DecodeConfig::kThreads, kBarrier);
  for (int i = static_cast<int>(threadIdx.x); i < item.rows * kVectors;
       i += DecodeConfig::kThreads) {
    const int row = i / kVectors;
    const int column = i % kVectors * 4;
    store_joined<kConfig>(params, item, row, column, join_warps(shared, row, column));
  }
  __syncwarp();
  if (threadIdx.x % 32 == 0) shared.sums_read.arrive();
  if (item.slot < 0 || params.pieces.marks == nullptr) return;
  cutlass::arch::NamedBarrier::sync(DecodeConfig::kThreads, kBarrier);
  if (threadIdx.x == 0) mark_piece(params.pieces, item.slot);
}

}  // namespace quire::cuda::sm90::flash_attention
