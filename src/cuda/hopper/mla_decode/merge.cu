// SPDX-License-Identifier: Apache-2.0
// Items that several clusters worked on. Launched beside the attention kernel: finds its work from the
// lengths while that one still runs, and waits for it before it reads a piece.
//
// A column of blocks per item; items that one cluster did alone have nothing to merge.
#include "cuda/hopper/mla_decode/merge.h"

#include <algorithm>

#include "cuda/hopper/flash_attention/decode/find_work.cuh"
#include "cuda/hopper/latent_attention/merge.cuh"
#include "cuda/hopper/mla_decode/touch_lengths.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

constexpr int kMergeWarps = 8;
constexpr int kRowChunks = LatentConfig::kLatent / 128;
constexpr int kRowParts = LatentConfig::kLatent / 32;
// From so many pieces on, a row is 16 warps' work.
constexpr int kManyPieces = 8;
constexpr unsigned kMostColumns = 256;

struct MergeItem {
  PieceSlots slots{};
  std::int64_t first_token = 0;
  int rows = 0;
};

// What comes before a sequence on the line.
__device__ int line_begin(const MlaDecodeParams& params, int sequence) {
  int before = 0;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < sequence; i += 32) {
    before += cost_of(params, i);
  }
  return warp_sum(before);
}

__device__ PieceSlots cut_slots(const MlaDecodeParams& params, const SequenceWork& work,
                                int sequence, int tile) {
  const WorkCuts cuts = cut_batch(params);
  const int begin = line_begin(params, sequence) + tile * work.item_cost(params.split);
  const SharedItem shared = shared_item(params.split, cuts, begin, work.blocks);
  return {.count = shared.pieces,
          .first = piece_slot(shared.first, true),
          .second = piece_slot(shared.first + 1, false),
          .step = 2};
}

__device__ PieceSlots invariant_slots(const MlaDecodeParams& params, const SequenceWork& work,
                                      int sequence, int tile) {
  const std::int64_t first = invariant_slot(params.batch, params.split, sequence, 0, tile, 0);
  return {.count = ceil_div(work.blocks, invariant_piece_blocks(work.blocks)),
          .first = first,
          .second = first + 1};
}

__device__ MergeItem find_item(const MlaDecodeParams& params, int index) {
  const int sequence = index / params.split.max_tiles;
  const int tile = index % params.split.max_tiles;
  const SequenceWork work = sequence_work(params.batch, sequence);
  const int skipped = tile * params.batch.tile_tokens;
  if (skipped >= work.tokens) return {};
  return {.slots = params.split.is_invariant ? invariant_slots(params, work, sequence, tile)
                                             : cut_slots(params, work, sequence, tile),
          .first_token = work.first_token + skipped,
          .rows = min(work.tokens - skipped, params.batch.tile_tokens) * params.batch.group};
}

__global__ void __launch_bounds__(32 * kMergeWarps)
    merge_kernel(const __grid_constant__ MlaDecodeParams params) {
  touch_lengths(params.batch);
  const MergeItem item = find_item(params, static_cast<int>(blockIdx.x));
  cudaGridDependencySynchronize();
  if (item.slots.count < 2) return;
  const int warp = static_cast<int>(blockIdx.y) * kMergeWarps + static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(gridDim.y) * kMergeWarps;
  if (item.slots.count < kManyPieces) {
    for (int row = warp; row < item.rows; row += warps) {
      merge_row<DType::bf16, kRowChunks, 2>(params.attend, item.slots, item.first_token, row, 0);
    }
  } else {
    for (int unit = warp; unit < item.rows * kRowParts; unit += warps) {
      merge_part<DType::bf16>(params.attend, item.slots, item.first_token, unit / kRowParts,
                              unit % kRowParts);
    }
  }
}

}  // namespace

void merge_mla_pieces(const MlaDecodeParams& params, std::int64_t items, cudaStream_t stream) {
  // Two blocks for every multiprocessor: what a block does before it knows its item costs more than
  // a few rows.
  const auto wanted = static_cast<unsigned>(params.split.blocks * 4 / items);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(params.batch.size) *
                                           static_cast<unsigned>(params.split.max_tiles),
                                       std::clamp(wanted, 1U, kMostColumns)),
                          .block = dim3(32 * kMergeWarps),
                          .overlaps_previous = true};
  launch(merge_kernel, shape, stream, params);
}

}  // namespace quire::cuda::hopper
