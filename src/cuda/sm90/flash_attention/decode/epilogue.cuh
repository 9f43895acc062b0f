// SPDX-License-Identifier: Apache-2.0
// The end of a work tile: the sums of the warps, each over its own keys, become one row; that goes to the
// output, or to the workspace if the work tile has other splits.
#pragma once

#include <cutlass/arch/barrier.h>

#include "cuda/sm90/flash_attention/decode/attend_rows.cuh"
#include "cuda/sm90/flash_attention/decode/combine.cuh"
#include "cuda/sm90/flash_attention/decode/shared.cuh"

namespace quire::cuda::sm90::flash_attention {

// The end of a CTA's work: the work tile that it found begun and brought to its end is put
// together from everyone's splits, without a second kernel (5 µs of 16 for one sequence).
//
// Whoever stores a split then says so by writing the launch's mark beside it; who puts the work tile together
// waits for the marks and takes them away again, so that a replay of the same launch starts without.
// Marks are 64 random bits: nothing else that may stand in a workspace is taken for one. A CTA
// waits for earlier ones only, so the earliest that runs never waits.

// The work tile that earlier parts began and this one ends, if it does; `place` is that of the part's cut.
__device__ inline MergeWorkTile find_ended_work_tile(const DecodeParams& params,
                                                     const WorkCuts& cuts, const WorkPlace& place,
                                                     int part) {
  if (part == 0 || part >= cuts.parts) return {};
  const SequenceWork& work = place.work;
  const int list = params.work_lists.list(static_cast<int>(blockIdx.x));
  const std::int64_t first_slot = params.work_lists.first_slot(list);
  const int cost = work.work_tile_cost(params.schedule);
  const int index = (cuts.at(part) - place.begin) / cost;
  const int begin = place.begin + index * cost;
  const SharedWorkTile shared = shared_work_tile(params.schedule, cuts, begin, work.blocks);
  if (shared.splits < 2 || shared.first + shared.splits - 1 != part) return {};
  const int tile = index < params.batch.kv_heads ? 0 : index / params.batch.kv_heads;
  MergeWorkTile work_tile{
      .splits = shared.splits,
      .kv_head = params.work_lists.kv_head(list, index - tile * params.batch.kv_heads),
      .tile = tile,
      .first_slot = first_slot + split_slot(shared.first, true),
      .second_slot = first_slot + split_slot(shared.first + 1, false),
      .slot_step = 2};
  set_tokens(params, work, work_tile);
  return work_tile;
}

// By one thread, once the split is stored and a barrier has brought its writers together.
__device__ inline void mark_split(const DecodeSplits& splits, std::int64_t slot) {
  asm volatile(
      "fence.acq_rel.gpu;\n st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(splits.marks + slot),
      "l"(splits.mark)
      : "memory");
}

__device__ inline bool is_marked(const DecodeSplits& splits, std::int64_t slot) {
  std::uint64_t found;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];"
               : "=l"(found)
               : "l"(splits.marks + slot)
               : "memory");
  return found == splits.mark;
}

// By the warps that load, after the last copy.
template <DecodeConfig kConfig>
__device__ void join_splits(const DecodeParams& params, const WorkCuts& cuts,
                            const WorkPlace& place, int part, int warp) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const MergeWorkTile work_tile = find_ended_work_tile(params, cuts, place, part);
  if (work_tile.splits < 2) return;
  for (int split = lane; split < work_tile.splits; split += 32) {
    while (!is_marked(params.splits, work_tile.slot(split))) {
    }
  }
  __syncwarp();
  merge_rows(params, {.rows = kConfig.rows, .dims = kConfig.dims()}, work_tile, warp,
             DecodeConfig::kLoadThreads / 32);
  WorkScan::sync();
  for (int split = warp * 32 + lane; split < work_tile.splits;
       split += DecodeConfig::kLoadThreads) {
    params.splits.marks[work_tile.slot(split)] = 0;
  }
}

// Rows [kRound · staged_rows, …) of the warp, as the next two functions.
template <int kRound, DecodeConfig kConfig>
__device__ void stage_stats(DecodeShared<kConfig>& shared, const RowSums<kConfig>& sums, int warp) {
  constexpr int kHalves = kConfig.staged_rows() / 8;
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const float sum = quad_sum(sums.sum[kRound * kHalves + half]);
    const float max = sums.max[kRound * kHalves + half];
    if (lane % 4 == 0) shared.stats[warp][lane / 4 + 8 * half] = {max, sum};
  }
}

template <int kRound, DecodeConfig kConfig>
__device__ void stage_sums(DecodeShared<kConfig>& shared, const RowSums<kConfig>& sums, int warp) {
  constexpr int kHalves = kConfig.staged_rows() / 8;
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int group = 0; group < kConfig.warp_columns() / 16; ++group) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 8 * half + lane % 4 * 2 + i % 2;
        const int column = value_column<kConfig.dtype>(group, lane / 4, i / 2);
        shared.sums[warp][row][column] = sums.values[group][kRound * kHalves + half][i];
      }
    }
  }
}

// A row's sums over all keys of the split: four columns.
struct SplitRow {
  float max = kNoKey;
  float sum = 0.0F;
  float4 values{};
};

// `row` of those staged, in the order of the sets.
template <DecodeConfig kConfig>
__device__ SplitRow join_warps(const DecodeShared<kConfig>& shared, int row, int column) {
  constexpr int kRows = kConfig.staged_rows();
  constexpr int kWarps = kConfig.key_warps();
  constexpr int kColumns = kConfig.warp_columns();
  const int set = kConfig.row_sets() > 1 ? row / kRows * DecodeConfig::kSetWarps : 0;
  const int first = kConfig.column_warps > 1 ? set + column / kColumns : set;
  const int warp_column = kConfig.column_warps > 1 ? column % kColumns : column;
  const int warp_row = row % kRows;
  SplitRow joined;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    joined.max = fmaxf(joined.max, shared.stats[first + i * kConfig.column_warps][warp_row].x);
  }
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    const int warp = first + i * kConfig.column_warps;
    const float2 stats = shared.stats[warp][warp_row];
    const float weight = rebased(stats.x, joined.max);
    joined.sum += stats.y * weight;
    add_scaled(joined.values,
               *reinterpret_cast<const float4*>(&shared.sums[warp][warp_row][warp_column]), weight);
  }
  return joined;
}

// Columns [column, column + 4) of a row to where they go.
template <DecodeConfig kConfig>
__device__ void store_joined(const DecodeParams& params, const DecodeWorkTile& work_tile, int row,
                             int column, const SplitRow& joined) {
  if (work_tile.slot >= 0) {
    const std::int64_t place = work_tile.slot * kConfig.rows + row;
    *reinterpret_cast<float4*>(params.splits.sums + place * kConfig.dims() + column) =
        joined.values;
    if (column == 0) params.splits.stats[place] = {joined.max, joined.sum};
    return;
  }
  const int head = work_tile.kv_head * params.batch.group + row % params.batch.group;
  const std::int64_t token = work_tile.first_token + row / params.batch.group;
  const RowEnd end = end_row(params.scores, head, joined.max, joined.sum);
  const float factor = end.factor * params.scales.of_values(work_tile.kv_head);
  store_output(params.outputs, token, head, column, scaled(joined.values, factor));
  if (column == 0) store_lse(params.outputs, token, head, end.lse);
}

inline constexpr int kFinishBarrier = 1;

// Rows that are staged at a time, to where they go. `phase` turns with every round.
template <int kRound, DecodeConfig kConfig>
__device__ void finish_rows(const DecodeParams& params, DecodeShared<kConfig>& shared,
                            const DecodeWorkTile& work_tile, const RowSums<kConfig>& sums, int warp,
                            std::uint32_t& phase) {
  constexpr int kVectors = kConfig.dims() / 4;
  constexpr int kRows = kConfig.staged_rows();
  constexpr bool kAllAtOnce = kRows == kConfig.warp_rows();
  shared.sums_read.wait(phase ^ 1);
  phase ^= 1;
  stage_stats<kRound>(shared, sums, warp);
  stage_sums<kRound>(shared, sums, warp);
  cutlass::arch::NamedBarrier::sync(DecodeConfig::kThreads, kFinishBarrier);
  const int staged = kAllAtOnce ? work_tile.rows : kRows * kConfig.row_sets();
  for (int i = static_cast<int>(threadIdx.x); i < staged * kVectors; i += DecodeConfig::kThreads) {
    const int column = i % kVectors * 4;
    const int place = i / kVectors;
    const int row = kAllAtOnce
                        ? place
                        : place / kRows * DecodeConfig::kTileRows + kRound * kRows + place % kRows;
    if (!kAllAtOnce && row >= work_tile.rows) continue;
    store_joined<kConfig>(params, work_tile, row, column, join_warps(shared, place, column));
  }
  __syncwarp();
  if (threadIdx.x % 32 == 0) shared.sums_read.arrive();
}

// `warp` is the warp's place in the order of sums. One round for all columns, and the staging is waited for
// where it is needed again: with two rounds of 64 columns, each between two barriers, 128 sequences of 1024
// keys in e4m3 took 87 µs instead of 83. Of wide heads, a round of eight rows of a warp at a time: more
// do not fit beside the ring.
template <DecodeConfig kConfig>
__device__ void finish_work_tile(const DecodeParams& params, DecodeShared<kConfig>& shared,
                                 const DecodeWorkTile& work_tile, const RowSums<kConfig>& sums,
                                 int warp, std::uint32_t& phase) {
  finish_rows<0>(params, shared, work_tile, sums, warp, phase);
  if constexpr (kConfig.warp_rows() > kConfig.staged_rows()) {
    finish_rows<1>(params, shared, work_tile, sums, warp, phase);
  }
  if (work_tile.slot < 0 || params.splits.marks == nullptr) return;
  cutlass::arch::NamedBarrier::sync(DecodeConfig::kThreads, kFinishBarrier);
  if (threadIdx.x == 0) mark_split(params.splits, work_tile.slot);
}

}  // namespace quire::cuda::sm90::flash_attention
