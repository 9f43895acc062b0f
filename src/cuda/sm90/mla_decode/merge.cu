// SPDX-License-Identifier: Apache-2.0
// Work tiles that several clusters worked on. Launched beside the attention kernel, whose split counts say which.
//
// As many columns of blocks per sequence as it is expected to have work tiles, which take them by turns: as a rule
// that is one, and a column for each work tile that there may be would mostly start blocks without work (4 096
// of them for 16 sequences of 64 heads). Work tiles that one cluster did alone have nothing to merge.
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
// From so many splits on, a quarter of a row is a block's work.
constexpr int kManySplits = 16;
constexpr unsigned kMostColumns = 256;
constexpr std::int64_t kMostTurns = 1024;  // a grid's third side ends at 65 535

// A work tile as the lengths tell it; nothing of the kernel before this one is needed for that.
struct CombineWorkTile {
  int index = 0;  // of the split counts
  int sequence = 0;
  int tile = 0;  // of the sequence's tokens
  std::int64_t first_token = 0;
  int rows = 0;         // 0: there is no such work tile
  bool is_last = true;  // of the sequence, or behind it
};

__device__ CombineWorkTile find_work_tile(const MlaDecodeParams& params, int sequence, int tile) {
  const auto begin = static_cast<int>(params.batch.row_offsets[sequence]);
  const int tokens = static_cast<int>(params.batch.row_offsets[sequence + 1]) - begin;
  const int skipped = tile * params.batch.tile_tokens;
  return {.index = sequence * params.schedule.max_tiles + tile,
          .sequence = sequence,
          .tile = tile,
          .first_token = begin + skipped,
          .rows = max(min(tokens - skipped, params.batch.tile_tokens), 0) * params.batch.group,
          .is_last = skipped + params.batch.tile_tokens >= tokens};
}

// `count` splits, of the CTAs from `first` on, which began the work tile.
__device__ SplitSlots cut_from(int first, int count) {
  return {.count = count,
          .first = split_slot(first, true),
          .second = split_slot(first + 1, false),
          .step = 2};
}

__device__ SplitSlots published_slots(const MlaDecodeParams& params,
                                      const CombineWorkTile& work_tile) {
  const SplitCount split_count = params.attend.splits.split_counts[work_tile.index];
  return cut_from(split_count.first_cluster, split_count.splits);
}

// Where nobody published split counts: the work list is added up once, all of it and what comes before the sequence.
__device__ SplitSlots cut_slots(const MlaDecodeParams& params, const CombineWorkTile& work_tile) {
  const SequenceWork work = sequence_work(params.batch, work_tile.sequence);
  int total = 0;
  int before = 0;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < params.batch.size; i += 32) {
    const int cost = cost_of(params, i);
    total += cost;
    if (i < work_tile.sequence) before += cost;
  }
  const WorkCuts cuts = cut_parts(params.schedule, warp_sum(total));
  const int begin = warp_sum(before) + work_tile.tile * work.work_tile_cost(params.schedule);
  const SharedWorkTile shared = shared_work_tile(params.schedule, cuts, begin, work.blocks);
  return cut_from(shared.first, shared.splits);
}

__device__ SplitSlots invariant_slots(const MlaDecodeParams& params,
                                      const CombineWorkTile& work_tile) {
  const SequenceWork work = sequence_work(params.batch, work_tile.sequence);
  const std::int64_t first =
      invariant_slot(params.batch, params.schedule, work_tile.sequence, 0, work_tile.tile, 0);
  return {.count = ceil_div(work.blocks, invariant_split_blocks(work.blocks)),
          .first = first,
          .second = first + 1};
}

// What follows from the lengths alone is looked up while the attention kernel still runs elsewhere, and who finds nothing
// to merge there does not wait for it.
__device__ SplitSlots find_slots(const MlaDecodeParams& params, const CombineWorkTile& work_tile) {
  const bool is_published =
      params.attend.splits.split_counts != nullptr && !params.schedule.is_invariant;
  SplitSlots slots;
  if (work_tile.rows > 0 && !is_published) {
    slots = params.schedule.is_invariant ? invariant_slots(params, work_tile)
                                         : cut_slots(params, work_tile);
  }
  if (is_published || slots.count >= 2) cudaGridDependencySynchronize();
  if (work_tile.rows > 0 && is_published) slots = published_slots(params, work_tile);
  return slots;
}

// A row is the work of four warps, or of two, where there are so many. `warp`: of the work tile's `warps`.
template <int kChunks, int kAhead>
__device__ void merge_rows(const MlaDecodeParams& params, const CombineWorkTile& work_tile,
                           const SplitSlots& slots, int warp, int warps) {
  constexpr int kRowWarps = kRowChunks / kChunks;
  for (int unit = warp; unit < work_tile.rows * kRowWarps; unit += warps) {
    merge_row<DType::bf16, kChunks, kAhead>(params.attend, slots, work_tile.first_token,
                                            unit / kRowWarps, unit % kRowWarps * kChunks);
  }
}

__device__ void merge_many(const MlaDecodeParams& params, const CombineWorkTile& work_tile,
                           const SplitSlots& slots) {
  __shared__ WarpSums<kMergeWarps> parts[2];
  __syncthreads();  // of the work tile before
  int turn = 0;
  for (auto unit = static_cast<int>(blockIdx.y); unit < work_tile.rows * kRowChunks;
       unit += static_cast<int>(gridDim.y), turn ^= 1) {
    merge_by_block<DType::bf16, kMergeWarps>(params.attend, slots, work_tile.first_token,
                                             unit / kRowChunks, unit % kRowChunks, parts[turn]);
  }
}

__device__ void merge_work_tile(const MlaDecodeParams& params, const CombineWorkTile& work_tile,
                                const SplitSlots& slots) {
  const int warp = static_cast<int>(blockIdx.y) * kMergeWarps + static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(gridDim.y) * kMergeWarps;
  if (slots.count >= kManySplits) {
    merge_many(params, work_tile, slots);
  } else if (work_tile.rows * 4 <= warps) {
    merge_rows<1, 8>(params, work_tile, slots, warp, warps);
  } else if (work_tile.rows * 2 <= warps) {
    merge_rows<2, 8>(params, work_tile, slots, warp, warps);
  } else {
    merge_rows<4, 4>(params, work_tile, slots, warp, warps);
  }
}

// Where multiprocessors are idle beside the attention kernel, blocks without work come and go there while it runs. The
// first block waits for it in any case: this kernel's end is to say that both have ended.
__global__ void __launch_bounds__(32 * kMergeWarps)
    merge_kernel(const __grid_constant__ MlaDecodeParams params) {
  for (auto tile = static_cast<int>(blockIdx.z);; tile += static_cast<int>(gridDim.z)) {
    const CombineWorkTile work_tile = find_work_tile(params, static_cast<int>(blockIdx.x), tile);
    const SplitSlots slots = find_slots(params, work_tile);
    if (slots.count >= 2) merge_work_tile(params, work_tile, slots);
    if (work_tile.is_last) break;
  }
  if (blockIdx.x + blockIdx.y + blockIdx.z == 0) cudaGridDependencySynchronize();
}

}  // namespace

void merge_mla_splits(const MlaDecodeParams& params, std::int64_t work_tiles, int blocks,
                      cudaStream_t stream) {
  const auto size = static_cast<unsigned>(params.batch.size);
  const auto turns =
      static_cast<unsigned>(std::clamp<std::int64_t>(work_tiles / size, 1, kMostTurns));
  // Two blocks for every multiprocessor: there is room for no more at a time.
  const unsigned wanted = 2 * static_cast<unsigned>(blocks) / (size * turns);
  const LaunchShape shape{.grid = dim3(size, std::clamp(wanted, 1U, kMostColumns), turns),
                          .block = dim3(32 * kMergeWarps),
                          .overlaps_previous = true};
  launch(merge_kernel, shape, stream, params);
}

}  // namespace quire::cuda::sm90::mla_decode
