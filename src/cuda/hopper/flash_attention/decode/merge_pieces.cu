// SPDX-License-Identifier: Apache-2.0
// Items that several thread blocks worked on: their pieces become rows of the output, in the order of
// the keys. Launched beside the decode kernel; finds its work from the lengths while that one still
// runs, and waits for it before it reads a piece.
//
// One thread block per cut of the work, or per item if pieces are invariant; a warp per row.
#include "cuda/hopper/flash_attention/decode/merge_pieces.h"

#include "cuda/hopper/flash_attention/decode/find_work.cuh"
#include "cuda/hopper/flash_attention/decode/store_rows.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

constexpr int kMergeWarps = 8;
constexpr int kLoadsAhead = 16;

__device__ float warp_max(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, distance));
  }
  return value;
}
__device__ float warp_sum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kWholeWarp, value, distance);
  }
  return value;
}

struct MergeItem {
  int pieces = 0;  // below 2: nothing to merge
  int kv_head = 0;
  int tile = 0;
  std::int64_t first_slot = 0;   // of piece 0
  std::int64_t second_slot = 0;  // of piece 1
  int slot_step = 1;             // from there on
  SequenceWork work{};

  __device__ std::int64_t slot(int piece) const {
    return piece == 0 ? first_slot : second_slot + std::int64_t{piece - 1} * slot_step;
  }
};

// The item that thread block `blockIdx.x` began and others went on with.
__device__ MergeItem find_cut_item(const DecodeParams& params) {
  const int thread_block = static_cast<int>(blockIdx.x);
  const WorkCuts cuts = cut_batch(params);
  if (thread_block + 1 >= cuts.parts) return {};
  const int position = cuts.at(thread_block + 1);
  const LinePlace place = find_place(params, position);
  MergeItem item{.work = sequence_work(params.batch, place.sequence)};
  const int cost = item.work.item_cost(params.split);
  const int index = (position - place.begin) / cost;
  const int begin = place.begin + index * cost;
  const int block = cut_block(params.split, position - begin, item.work.blocks);
  if (block == 0 || block == item.work.blocks) return {};
  const SharedItem shared = shared_item(params.split, cuts, begin, item.work.blocks);
  if (shared.first != thread_block) return {};
  item.pieces = shared.pieces;
  item.kv_head = index % params.batch.kv_heads;
  item.tile = index / params.batch.kv_heads;
  item.first_slot = piece_slot(thread_block, true);
  item.second_slot = piece_slot(thread_block + 1, false);
  item.slot_step = 2;
  return item;
}

__device__ MergeItem find_invariant_item(const DecodeParams& params) {
  const int item_index = static_cast<int>(blockIdx.x);
  const int tile = item_index % params.split.max_tiles;
  const int head_index = item_index / params.split.max_tiles;
  const int sequence = head_index / params.batch.kv_heads;
  MergeItem item{.kv_head = head_index % params.batch.kv_heads,
                 .tile = tile,
                 .work = sequence_work(params.batch, sequence)};
  if (tile * params.batch.tile_tokens >= item.work.tokens) return {};
  const int size = invariant_piece_blocks(item.work.blocks);
  item.pieces = ceil_div(item.work.blocks, size);
  item.first_slot = invariant_slot(params.batch, params.split, sequence, item.kv_head, tile, 0);
  item.second_slot = item.first_slot + 1;
  return item;
}

// Lane l holds what piece first + l has to say of a row; lanes past the last piece hold nothing.
__device__ float2 piece_stats(const DecodeParams& params, const MergeShape& shape,
                              const MergeItem& item, int row, int piece) {
  if (piece >= item.pieces) return {kNoKey, 0.0F};
  return params.pieces.stats[item.slot(piece) * shape.rows + row];
}

struct MergedRow {
  float max = kNoKey;
  float sum = 0.0F;
};

__device__ MergedRow merge_stats(const DecodeParams& params, const MergeShape& shape,
                                 const MergeItem& item, int row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  MergedRow merged;
  for (int first = 0; first < item.pieces; first += 32) {
    const float2 stats = piece_stats(params, shape, item, row, first + lane);
    const float top = fmaxf(merged.max, warp_max(stats.x));
    merged.sum = merged.sum * rebase(merged.max, top) + warp_sum(stats.y * rebase(stats.x, top));
    merged.max = top;
  }
  return merged;
}

// Columns [column, column + 4) of a row, kLoadsAhead pieces on their way at a time.
__device__ float4 merge_sums(const DecodeParams& params, const MergeShape& shape,
                             const MergeItem& item, int row, int column, float max) {
  float4 sums{};
  for (int first = 0; first < item.pieces; first += kLoadsAhead) {
    float4 values[kLoadsAhead];
    float weights[kLoadsAhead];
#pragma unroll
    for (int i = 0; i < kLoadsAhead; ++i) {
      const std::int64_t place = item.slot(min(first + i, item.pieces - 1)) * shape.rows + row;
      values[i] =
          *reinterpret_cast<const float4*>(params.pieces.sums + place * shape.dims + column);
      weights[i] = params.pieces.stats[place].x;
    }
#pragma unroll
    for (int i = 0; i < kLoadsAhead; ++i) {
      if (first + i < item.pieces) add_scaled(sums, values[i], rebase(weights[i], max));
    }
  }
  return sums;
}

__device__ void merge_row(const DecodeParams& params, const MergeShape& shape,
                          const MergeItem& item, int row) {
  const MergedRow merged = merge_stats(params, shape, item, row);
  const int head = item.kv_head * params.batch.group + row % params.batch.group;
  const std::int64_t token =
      item.work.first_token + item.tile * params.batch.tile_tokens + row / params.batch.group;
  const FinishedRow finished = finish_row(params.scores, head, merged.max, merged.sum);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int column = lane * 4; column < params.outputs.value_dim; column += 128) {
    const float4 sums = merge_sums(params, shape, item, row, column, merged.max);
    store_output(params.outputs, token, head, column, scaled(sums, finished.factor));
  }
  if (lane == 0) store_lse(params.outputs, token, head, finished.lse);
}

__global__ void __launch_bounds__(32 * kMergeWarps)
    merge_kernel(const __grid_constant__ DecodeParams params, const MergeShape shape) {
  const MergeItem item =
      params.split.is_invariant ? find_invariant_item(params) : find_cut_item(params);
  cudaGridDependencySynchronize();
  if (item.pieces < 2) return;
  const int tokens =
      min(item.work.tokens - item.tile * params.batch.tile_tokens, params.batch.tile_tokens);
  for (int row = static_cast<int>(threadIdx.x) / 32; row < tokens * params.batch.group;
       row += kMergeWarps) {
    merge_row(params, shape, item, row);
  }
}

}  // namespace

void merge_pieces(const DecodeParams& params, const MergeShape& shape, cudaStream_t stream) {
  const int items = params.batch.size * params.batch.kv_heads * params.split.max_tiles;
  const int blocks = params.split.is_invariant ? items : params.split.blocks;
  const LaunchShape launch_shape{.grid = dim3(static_cast<unsigned>(blocks)),
                                 .block = dim3(32 * kMergeWarps),
                                 .overlaps_previous = true};
  launch(merge_kernel, launch_shape, stream, params, shape);
}

}  // namespace quire::cuda::hopper
