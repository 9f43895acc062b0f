// SPDX-License-Identifier: Apache-2.0
// Splits that the decode kernel does not put together itself (epilogue.cuh): invariant ones, of which
// a work tile may have several of one CTA, and those of many rows. Launched beside the decode
// kernel; finds its work from the lengths while that one still runs, and waits for it before it reads a
// split. One CTA per work tile, or per CTA of that kernel for the work tile that it ended.
#include "cuda/sm90/flash_attention/decode/params.h"

#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/flash_attention/decode/epilogue.cuh"

namespace quire::cuda::sm90::flash_attention {
namespace {

constexpr int kMergeWarps = 8;

__device__ MergeWorkTile find_invariant_work_tile(const DecodeParams& params) {
  const int list = params.work_lists.list(static_cast<int>(blockIdx.x));
  const int work_tile_index = params.work_lists.part(static_cast<int>(blockIdx.x));
  const int tile = work_tile_index % params.schedule.max_tiles;
  const int head_index = work_tile_index / params.schedule.max_tiles;
  const int sequence = head_index / params.batch.kv_heads;
  const int head = head_index % params.batch.kv_heads;
  MergeWorkTile work_tile{.kv_head = params.work_lists.kv_head(list, head), .tile = tile};
  const SequenceWork work = sequence_work(params.batch, sequence);
  if (tile * params.batch.tile_tokens >= work.tokens) return {};
  set_tokens(params, work, work_tile);
  const int size = invariant_split_blocks(work.blocks);
  work_tile.splits = ceil_div(work.blocks, size);
  work_tile.first_slot = params.work_lists.first_slot(list) +
                         invariant_slot(params.batch, params.schedule, sequence, head, tile, 0);
  work_tile.second_slot = work_tile.first_slot + 1;
  return work_tile;
}

__device__ MergeWorkTile find_cut_work_tile(const DecodeParams& params) {
  const int part = params.work_lists.part(static_cast<int>(blockIdx.x));
  const WorkCuts cuts = cut_batch(params);
  if (part >= cuts.parts) return {};
  const WorkPlace place = find_place(params, cuts.at(part));
  return find_ended_work_tile(params, cuts, place, part);
}

__global__ void __launch_bounds__(32 * kMergeWarps, 2)
    merge_kernel(const __grid_constant__ DecodeParams params, const MergeShape shape) {
  const MergeWorkTile work_tile =
      params.schedule.is_invariant ? find_invariant_work_tile(params) : find_cut_work_tile(params);
  cudaGridDependencySynchronize();
  if (work_tile.splits < 2) return;
  merge_rows(params, shape, work_tile, static_cast<int>(threadIdx.x) / 32, kMergeWarps);
}

}  // namespace

void merge_splits(const DecodeParams& params, const MergeShape& shape, cudaStream_t stream) {
  const int work_tiles = params.batch.size * params.batch.kv_heads * params.schedule.max_tiles;
  const int parts = params.schedule.is_invariant ? work_tiles : params.schedule.blocks;
  const LaunchShape launch_shape{
      .grid = dim3(static_cast<unsigned>(parts << params.work_lists.bits)),
      .block = dim3(32 * kMergeWarps),
      .overlaps_previous = true};
  launch(merge_kernel, launch_shape, stream, params, shape);
}

}  // namespace quire::cuda::sm90::flash_attention
