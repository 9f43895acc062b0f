// SPDX-License-Identifier: Apache-2.0
// The end of a thread block's work: the item that it found begun and brought to its end is put
// together from everyone's pieces, without a second kernel (5 µs of 16 for one sequence).
//
// Whoever stores a piece then says so by writing the launch's mark beside it; who puts the item together
// waits for the marks and takes them away again, so that a replay of the same launch starts without.
// Marks are 64 random bits: nothing else that may stand in a workspace is taken for one. A thread block
// waits for earlier ones only, so the earliest that runs never waits.
#pragma once

#include "cuda/sm90/flash_attention/decode/merge_rows.cuh"
#include "cuda/sm90/flash_attention/decode/shared.cuh"

namespace quire::cuda::sm90::flash_attention {

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

}  // namespace quire::cuda::sm90::flash_attention
