// SPDX-License-Identifier: Apache-2.0
// Items that several clusters worked on. Launched beside the attention kernel, whose notes say which.
//
// As many columns of blocks per sequence as it is expected to have items, which take them by turns: as a rule
// that is one, and a column for each item that there may be would mostly start blocks without work (4 096
// of them for 16 sequences of 64 heads). Items that one cluster did alone have nothing to merge.
#include "cuda/sm90/mla_decode/plan_decode.h"

#include <algorithm>

#include "cuda/common/runtime/launch.h"
#include "cuda/common/split_kv/find_work.cuh"
#include "cuda/sm90/mla_decode/latent/store.cuh"
#include "cuda/sm90/mla_decode/params.h"

namespace quire::cuda::sm90::mla_decode {
namespace {

constexpr int kMergeWarps = 8;
constexpr int kRowChunks = LatentConfig::kLatent / 128;
// From so many pieces on, a quarter of a row is a block's work.
constexpr int kManyPieces = 16;
constexpr unsigned kMostColumns = 256;
constexpr std::int64_t kMostTurns = 1024;  // a grid's third side ends at 65 535

// An item as the lengths tell it; nothing of the kernel before this one is needed for that.
struct CombineItem {
  int index = 0;  // of the notes
  int sequence = 0;
  int tile = 0;  // of the sequence's tokens
  std::int64_t first_token = 0;
  int rows = 0;         // 0: there is no such item
  bool is_last = true;  // of the sequence, or behind it
};

__device__ CombineItem find_item(const MlaDecodeParams& params, int sequence, int tile) {
  const auto begin = static_cast<int>(params.batch.row_offsets[sequence]);
  const int tokens = static_cast<int>(params.batch.row_offsets[sequence + 1]) - begin;
  const int skipped = tile * params.batch.tile_tokens;
  return {.index = sequence * params.split.max_tiles + tile,
          .sequence = sequence,
          .tile = tile,
          .first_token = begin + skipped,
          .rows = max(min(tokens - skipped, params.batch.tile_tokens), 0) * params.batch.group,
          .is_last = skipped + params.batch.tile_tokens >= tokens};
}

// `count` pieces, of the CTAs from `first` on, which began the item.
__device__ PieceSlots cut_from(int first, int count) {
  return {.count = count,
          .first = piece_slot(first, true),
          .second = piece_slot(first + 1, false),
          .step = 2};
}

__device__ PieceSlots noted_slots(const MlaDecodeParams& params, const CombineItem& item) {
  const PieceNote note = params.attend.pieces.notes[item.index];
  return cut_from(note.first_cluster, note.pieces);
}

// Where nobody left notes: the line is added up once, all of it and what comes before the sequence.
__device__ PieceSlots cut_slots(const MlaDecodeParams& params, const CombineItem& item) {
  const SequenceWork work = sequence_work(params.batch, item.sequence);
  int total = 0;
  int before = 0;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < params.batch.size; i += 32) {
    const int cost = cost_of(params, i);
    total += cost;
    if (i < item.sequence) before += cost;
  }
  const WorkCuts cuts = cut_parts(params.split, warp_sum(total));
  const int begin = warp_sum(before) + item.tile * work.item_cost(params.split);
  const SharedItem shared = shared_item(params.split, cuts, begin, work.blocks);
  return cut_from(shared.first, shared.pieces);
}

__device__ PieceSlots invariant_slots(const MlaDecodeParams& params, const CombineItem& item) {
  const SequenceWork work = sequence_work(params.batch, item.sequence);
  const std::int64_t first =
      invariant_slot(params.batch, params.split, item.sequence, 0, item.tile, 0);
  return {.count = ceil_div(work.blocks, invariant_piece_blocks(work.blocks)),
          .first = first,
          .second = first + 1};
}

// What follows from the lengths alone is looked up while the attention kernel still runs elsewhere, and who finds nothing
// to merge there does not wait for it.
__device__ PieceSlots find_slots(const MlaDecodeParams& params, const CombineItem& item) {
  const bool is_noted = params.attend.pieces.notes != nullptr && !params.split.is_invariant;
  PieceSlots slots;
  if (item.rows > 0 && !is_noted) {
    slots = params.split.is_invariant ? invariant_slots(params, item) : cut_slots(params, item);
  }
  if (is_noted || slots.count >= 2) cudaGridDependencySynchronize();
  if (item.rows > 0 && is_noted) slots = noted_slots(params, item);
  return slots;
}

// A row is the work of four warps, or of two, where there are so many. `warp`: of the item's `warps`.
template <int kChunks, int kAhead>
__device__ void merge_rows(const MlaDecodeParams& params, const CombineItem& item,
                           const PieceSlots& slots, int warp, int warps) {
  constexpr int kRowWarps = kRowChunks / kChunks;
  for (int unit = warp; unit < item.rows * kRowWarps; unit += warps) {
    merge_row<DType::bf16, kChunks, kAhead>(params.attend, slots, item.first_token,
                                            unit / kRowWarps, unit % kRowWarps * kChunks);
  }
}

__device__ void merge_many(const MlaDecodeParams& params, const CombineItem& item,
                           const PieceSlots& slots) {
  __shared__ WarpSums<kMergeWarps> parts[2];
  __syncthreads();  // of the item before
  int turn = 0;
  for (auto unit = static_cast<int>(blockIdx.y); unit < item.rows * kRowChunks;
       unit += static_cast<int>(gridDim.y), turn ^= 1) {
    merge_by_block<DType::bf16, kMergeWarps>(params.attend, slots, item.first_token,
                                             unit / kRowChunks, unit % kRowChunks, parts[turn]);
  }
}

__device__ void merge_item(const MlaDecodeParams& params, const CombineItem& item,
                           const PieceSlots& slots) {
  const int warp = static_cast<int>(blockIdx.y) * kMergeWarps + static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(gridDim.y) * kMergeWarps;
  if (slots.count >= kManyPieces) {
    merge_many(params, item, slots);
  } else if (item.rows * 4 <= warps) {
    merge_rows<1, 8>(params, item, slots, warp, warps);
  } else if (item.rows * 2 <= warps) {
    merge_rows<2, 8>(params, item, slots, warp, warps);
  } else {
    merge_rows<4, 4>(params, item, slots, warp, warps);
  }
}

// Where multiprocessors are idle beside the attention kernel, blocks without work come and go there while it runs. The
// first block waits for it in any case: this kernel's end is to say that both have ended.
__global__ void __launch_bounds__(32 * kMergeWarps)
    merge_kernel(const __grid_constant__ MlaDecodeParams params) {
  for (auto tile = static_cast<int>(blockIdx.z);; tile += static_cast<int>(gridDim.z)) {
    const CombineItem item = find_item(params, static_cast<int>(blockIdx.x), tile);
    const PieceSlots slots = find_slots(params, item);
    if (slots.count >= 2) merge_item(params, item, slots);
    if (item.is_last) break;
  }
  if (blockIdx.x + blockIdx.y + blockIdx.z == 0) cudaGridDependencySynchronize();
}

}  // namespace

void merge_mla_pieces(const MlaDecodeParams& params, std::int64_t items, int blocks,
                      cudaStream_t stream) {
  const auto size = static_cast<unsigned>(params.batch.size);
  const auto turns = static_cast<unsigned>(std::clamp<std::int64_t>(items / size, 1, kMostTurns));
  // Two blocks for every multiprocessor: there is room for no more at a time.
  const unsigned wanted = 2 * static_cast<unsigned>(blocks) / (size * turns);
  const LaunchShape shape{.grid = dim3(size, std::clamp(wanted, 1U, kMostColumns), turns),
                          .block = dim3(32 * kMergeWarps),
                          .overlaps_previous = true};
  launch(merge_kernel, shape, stream, params);
}

}  // namespace quire::cuda::sm90::mla_decode
