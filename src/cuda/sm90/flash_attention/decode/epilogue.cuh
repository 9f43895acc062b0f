// SPDX-License-Identifier: Apache-2.0
// The end of an item: the sums of the warps, each over its own keys, become one row; that goes to the
// output, or to the workspace if the item has other pieces.
#pragma once

#include <cutlass/arch/barrier.h>

#include "cuda/sm90/flash_attention/decode/attend_rows.cuh"
#include "cuda/sm90/flash_attention/decode/combine.cuh"
#include "cuda/sm90/flash_attention/decode/shared.cuh"

namespace quire::cuda::sm90::flash_attention {

// The end of a CTA's work: the item that it found begun and brought to its end is put
// together from everyone's pieces, without a second kernel (5 µs of 16 for one sequence).
//
// Whoever stores a piece then says so by writing the launch's mark beside it; who puts the item together
// waits for the marks and takes them away again, so that a replay of the same launch starts without.
// Marks are 64 random bits: nothing else that may stand in a workspace is taken for one. A CTA
// waits for earlier ones only, so the earliest that runs never waits.

// The item that earlier parts began and this one ends, if it does; `place` is that of the part's cut.
__device__ inline MergeItem find_ended_item(const DecodeParams& params, const WorkCuts& cuts,
                                            const LinePlace& place, int part) {
  if (part == 0 || part >= cuts.parts) return {};
  const SequenceWork& work = place.work;
  const int line = params.lines.line(static_cast<int>(blockIdx.x));
  const std::int64_t first_slot = params.lines.first_slot(line);
  const int cost = work.item_cost(params.split);
  const int index = (cuts.at(part) - place.begin) / cost;
  const int begin = place.begin + index * cost;
  const SharedItem shared = shared_item(params.split, cuts, begin, work.blocks);
  if (shared.pieces < 2 || shared.first + shared.pieces - 1 != part) return {};
  const int tile = index < params.batch.kv_heads ? 0 : index / params.batch.kv_heads;
  MergeItem item{.pieces = shared.pieces,
                 .kv_head = params.lines.kv_head(line, index - tile * params.batch.kv_heads),
                 .tile = tile,
                 .first_slot = first_slot + piece_slot(shared.first, true),
                 .second_slot = first_slot + piece_slot(shared.first + 1, false),
                 .slot_step = 2};
  set_tokens(params.batch, work, item);
  return item;
}

// By one thread, once the piece is stored and a barrier has brought its writers together.
__device__ inline void mark_piece(const DecodePieces& pieces, std::int64_t slot) {
  asm volatile(
      "fence.acq_rel.gpu;\n st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(pieces.marks + slot),
      "l"(pieces.mark)
      : "memory");
}

__device__ inline bool is_marked(const DecodePieces& pieces, std::int64_t slot) {
  std::uint64_t found;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];"
               : "=l"(found)
               : "l"(pieces.marks + slot)
               : "memory");
  return found == pieces.mark;
}

// By the warps that load, after the last copy.
template <DecodeConfig kConfig>
__device__ void join_pieces(const DecodeParams& params, const WorkCuts& cuts,
                            const LinePlace& place, int part, int warp) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const MergeItem item = find_ended_item(params, cuts, place, part);
  if (item.pieces < 2) return;
  for (int piece = lane; piece < item.pieces; piece += 32) {
    while (!is_marked(params.pieces, item.slot(piece))) {
    }
  }
  __syncwarp();
  merge_rows(params, {.rows = kConfig.rows, .dims = kConfig.dims()}, item, warp,
             DecodeConfig::kLoadThreads / 32);
  LineScan::sync();
  for (int piece = warp * 32 + lane; piece < item.pieces; piece += DecodeConfig::kLoadThreads) {
    params.pieces.marks[item.slot(piece)] = 0;
  }
}

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
