// SPDX-License-Identifier: Apache-2.0
// Pieces that the decode kernel does not put together itself (epilogue.cuh): invariant ones, of which
// an item may have several of one CTA, and those of many rows. Launched beside the decode
// kernel; finds its work from the lengths while that one still runs, and waits for it before it reads a
// piece. One CTA per item, or per CTA of that kernel for the item that it ended.
#include "cuda/sm90/flash_attention/decode/params.h"

#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/flash_attention/decode/epilogue.cuh"

namespace quire::cuda::sm90::flash_attention {
namespace {

constexpr int kMergeWarps = 8;

__device__ MergeItem find_invariant_item(const DecodeParams& params) {
  const int line = params.lines.line(static_cast<int>(blockIdx.x));
  const int item_index = params.lines.part(static_cast<int>(blockIdx.x));
  const int tile = item_index % params.split.max_tiles;
  const int head_index = item_index / params.split.max_tiles;
  const int sequence = head_index / params.batch.kv_heads;
  const int head = head_index % params.batch.kv_heads;
  MergeItem item{.kv_head = params.lines.kv_head(line, head), .tile = tile};
  const SequenceWork work = sequence_work(params.batch, sequence);
  if (tile * params.batch.tile_tokens >= work.tokens) return {};
  set_tokens(params.batch, work, item);
  const int size = invariant_piece_blocks(work.blocks);
  item.pieces = ceil_div(work.blocks, size);
  item.first_slot = params.lines.first_slot(line) +
                    invariant_slot(params.batch, params.split, sequence, head, tile, 0);
  item.second_slot = item.first_slot + 1;
  return item;
}

__device__ MergeItem find_cut_item(const DecodeParams& params) {
  const int part = params.lines.part(static_cast<int>(blockIdx.x));
  const WorkCuts cuts = cut_batch(params);
  if (part >= cuts.parts) return {};
  const LinePlace place = find_place(params, cuts.at(part));
  return find_ended_item(params, cuts, place, part);
}

__global__ void __launch_bounds__(32 * kMergeWarps, 2)
    merge_kernel(const __grid_constant__ DecodeParams params, const MergeShape shape) {
  const MergeItem item =
      params.split.is_invariant ? find_invariant_item(params) : find_cut_item(params);
  cudaGridDependencySynchronize();
  if (item.pieces < 2) return;
  merge_rows(params, shape, item, static_cast<int>(threadIdx.x) / 32, kMergeWarps);
}

}  // namespace

void merge_pieces(const DecodeParams& params, const MergeShape& shape, cudaStream_t stream) {
  const int items = params.batch.size * params.batch.kv_heads * params.split.max_tiles;
  const int parts = params.split.is_invariant ? items : params.split.blocks;
  const LaunchShape launch_shape{.grid = dim3(static_cast<unsigned>(parts << params.lines.bits)),
                                 .block = dim3(32 * kMergeWarps),
                                 .overlaps_previous = true};
  launch(merge_kernel, launch_shape, stream, params, shape);
}

}  // namespace quire::cuda::sm90::flash_attention
