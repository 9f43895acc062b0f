// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/rows/token_place.cuh"
#include "cuda/sm90/mla_indexer/group/params.h"
#include "cuda/sm90/mla_indexer/select.cuh"
#include "cuda/sm90/mla_indexer/shared.cuh"
#include "cuda/sm90/mla_indexer/team.cuh"

namespace quire::cuda::sm90::mla_indexer {

inline constexpr int kGroupThreads = IndexConfig::kScorers + 128;
using GroupTeam = BlockTeam<kGroupThreads>;

// Of the selection from a CTA's own keys, then from the heads of its group.
struct GroupSelectShared {
  static constexpr int kWindowWords = 768;
  static constexpr int kScorerWarps = IndexConfig::kScorers / 32;

  SelectShared<1> select;
  RankSummary seen[kScorerWarps];  // by each warp of scorers
  std::uint64_t bound;
  unsigned collected;   // codes, of the head or of the tail
  unsigned valid;       // codes in all heads
  unsigned before;      // chosen positions before this CTA's window
  unsigned tail_place;  // of the CTA's own in its group's tail
  unsigned num_candidates;
  std::uint64_t candidates[kMostCandidates];
  RankLimits limits;
  // A bit for each position that this CTA writes if it is chosen.
  std::uint32_t window[kWindowWords];

  // Needs a sync before a selection.
  __device__ void clear() {
    const auto thread = static_cast<int>(threadIdx.x);
    clear_buckets(GroupTeam{}, select.bins[0]);
    for (int i = thread; i < kWindowWords; i += kGroupThreads) window[i] = 0;
    if (thread != 0) return;
    collected = 0;
    valid = 0;
    before = 0;
    num_candidates = 0;
    limits = {};
  }
};

// The ranks of a CTA's keys follow it: [capacity], tile after tile.
template <IndexConfig kConfig> struct alignas(1024) GroupShared : RowStages<kConfig> {
  GroupSelectShared select;

  // The codes of its head, where tiles were.
  static_assert(sizeof(RowStages<kConfig>::tiles) >= GroupBoard::kMostHead * sizeof(std::uint64_t));
  __device__ std::uint64_t* codes() { return reinterpret_cast<std::uint64_t*>(this->tiles); }
  __device__ std::uint32_t* ranks() { return reinterpret_cast<std::uint32_t*>(this + 1); }

  // By one thread, before a fence_barrier_init and a barrier.
  __device__ void init() { this->init_stages(); }
};

// Which row a CTA works on, and with whom: rows have as many CTAs as befits their tiles,
// and one at least. Found by a whole warp from the lengths in device memory.

// Where all rows have as many tiles: right for most batches, and known before any length is read.
__device__ inline RowShare guess_group(const IndexBatch& batch, int parts) {
  const auto rows = static_cast<unsigned>(batch.tokens);
  const GroupCuts cuts{.spare = parts - rows, .total = rows};
  const auto block = static_cast<int>(blockIdx.x);
  const auto lane = threadIdx.x % 32;
  const unsigned begun = __ballot_sync(kWholeWarp, lane < rows && cuts.begin(lane, lane) <= block);
  const auto row = static_cast<unsigned>(31 - __clz(static_cast<int>(begun)));
  const int first = cuts.begin(row, row);
  RowShare share{.rank = block - first, .size = cuts.begin(row + 1, row + 1) - first};
  share.row.token = static_cast<int>(row);
  return share;
}

// Of the lane-th token, if there is one.
__device__ inline WholeRow find_own_row(const IndexBatch& batch, int token) {
  WholeRow row{.token = token};
  if (token >= batch.tokens) return row;
  int sequence = min(token, batch.size - 1);  // where sequences have one new token each
  SequenceBlocks work = sequence_blocks(batch, sequence);
  if (token < work.first_token || token >= work.first_token + work.tokens) {
    sequence = sequence_of(batch.row_offsets, batch.size, static_cast<std::uint32_t>(token));
    work = sequence_blocks(batch, sequence);
    if (token >= work.first_token + work.tokens) return row;
  }
  row.sequence = sequence;
  row.bound = bound_of(batch, work, token - work.first_token);
  return row;
}

// max_tiles: of a row that the plan has room for.
__device__ inline RowShare find_group(const IndexBatch& batch, int parts, int max_tiles) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const WholeRow own = find_own_row(batch, lane);
  const int tiles = own.bound > batch.top_k ? min(own.tiles(), max_tiles) : 0;
  const unsigned end = sum_up_to_lane(static_cast<unsigned>(tiles), lane);
  const auto rows = static_cast<unsigned>(batch.tokens);
  const GroupCuts cuts{.spare = parts - rows, .total = max(__shfl_sync(kWholeWarp, end, 31), 1u)};
  const int first = cuts.begin(lane, end - tiles);
  const auto block = static_cast<int>(blockIdx.x);
  const unsigned begun = __ballot_sync(kWholeWarp, lane < batch.tokens && first <= block);
  const int row = 31 - __clz(static_cast<int>(begun));
  const int begin = __shfl_sync(kWholeWarp, first, row);
  const int behind = __shfl_sync(kWholeWarp, first, (row + 1) % 32);
  const int next = row + 1 < batch.tokens ? behind : parts;
  return {.rank = block - begin,
          .size = next - begin,
          .row = {.token = row,
                  .sequence = __shfl_sync(kWholeWarp, own.sequence, row),
                  .bound = __shfl_sync(kWholeWarp, own.bound, row)},
          .tiles = __shfl_sync(kWholeWarp, tiles, row)};
}

}  // namespace quire::cuda::sm90::mla_indexer
