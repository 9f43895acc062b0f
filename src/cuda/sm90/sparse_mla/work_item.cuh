// SPDX-License-Identifier: Apache-2.0
// The items of the work, by number.
#pragma once

#include <cutlass/arch/barrier.h>

#include "cuda/sm90/sparse_mla/params.h"
#include "cuda/sm90/sparse_mla/row_finder.cuh"
#include "cuda/sm90/sparse_mla/shared.cuh"

namespace quire::cuda::sm90::sparse_mla {

struct WorkItem {
  int token;
  int first_head;
  int first_tile;
  int num_tiles;  // at most
  int piece;      // its number among all pieces; kWhole: all of the token's tiles

  __device__ WorkItem(const SparseWork& work, int item) {
    const int number = item - work.whole;
    const bool is_whole = number < 0;
    const int unit = is_whole ? item : work.whole + number / work.pieces;
    token = unit / work.head_tiles;
    first_head = unit % work.head_tiles * SparseConfig::kHeads;
    first_tile = is_whole ? 0 : number % work.pieces * work.piece_tiles;
    num_tiles = is_whole ? work.tiles : work.piece_tiles;
    piece = is_whole ? kWhole : number;
  }
};

// The items of a block, in their order: every so many-th, or with the other block of a cluster every so
// many-th pair, of which it has one.
template <int kBlocks> struct ItemWalk {
  const SparseWork& work;
  int at = static_cast<int>(blockIdx.x) / kBlocks;
  // Every second item of a block goes through its slots from the last to the first, unless bits must not depend on
  // which items a block has. Slots mostly name
  // positions in ascending order, and all blocks are about as far: what the last items have read is in L2
  // still where the next ones begin, even if there is no room for all rows. Always upwards it is the row
  // that is wanted last of all that stays.
  bool is_backwards = false;

  __device__ bool is_over() const { return at >= work.items() / kBlocks; }
  __device__ bool is_first() const { return at == static_cast<int>(blockIdx.x) / kBlocks; }
  __device__ void advance() {
    at += static_cast<int>(gridDim.x) / kBlocks;
    is_backwards = work.alternates && !is_backwards;
  }
  // Pairs of blocks have neighbouring heads of a token and the same piece.
  __device__ int item() const {
    if constexpr (kBlocks == 1) return at;
    const int rank = static_cast<int>(blockIdx.x) % kBlocks;
    const int number = at - work.whole / kBlocks;
    if (number < 0) return at * kBlocks + rank;
    return work.whole + (number / work.pieces * kBlocks + rank) * work.pieces +
           number % work.pieces;
  }
};

// What a gathering warpgroup must know of an item before it sends for rows: whose token it is, and how
// many tiles of slots name a position.

// By all threads of a warpgroup. kKeys: slots of a tile.
template <int kKeys> class ItemScan {
 public:
  __device__ explicit ItemScan(const SparseParams& params) : params_(params) {}

  __device__ void place(int token) {
    const auto batch = static_cast<int>(params_.streams[0].rows.batch);
    sequence_ = batch == 0 ? -1 : find_sequence(params_.row_offsets, batch, token);
    if (sequence_ < 0) return;
    const std::uint32_t added = params_.row_offsets[sequence_ + 1] - params_.row_offsets[sequence_];
    main_.place(params_.streams[0], token, sequence_, added);
    extra_.place(params_.streams[1], token, sequence_, added);
  }
  __device__ int sequence() const { return sequence_; }  // -1: nobody's
  __device__ SlotLimits limits(int stream) const { return stream == 0 ? main_ : extra_; }
  __device__ int first_tile(const WorkItem& item, int stream) const {
    return stream == 0 ? item.first_tile : max(item.first_tile - params_.work.first_tiles, 0);
  }

  // Tiles of each stream up to the last slot that names a position: what follows is not gathered.
  // ends: in shared memory, of each stream and warp; who meets at `barrier` has read it.
  __device__ int2 count_tiles(const WorkItem& item, int (&ends)[2][4], int barrier) const {
    const int border = params_.work.first_tiles;
    const int last = item.first_tile + item.num_tiles;
    for (int stream = 0; stream < 2; ++stream) {
      const int first = first_tile(item, stream);
      const int end = stream == 0 ? min(last, border) : last - border;
      const int found = __reduce_max_sync(0xffffffff, last_tile(stream, item.token, first, end));
      if (thread() % 32 == 0) ends[stream][thread() / 32] = max(found - first, 0);
    }
    cutlass::arch::NamedBarrier::sync(kThreads, static_cast<std::uint32_t>(barrier));
    const auto most = [](const int(&of)[4]) { return max(max(of[0], of[1]), max(of[2], of[3])); };
    return {most(ends[0]), most(ends[1])};
  }

 private:
  static constexpr int kThreads = 128;
  static constexpr int kScans = 16;  // indices that a thread reads at a time

  __device__ static int thread() { return static_cast<int>(threadIdx.x % kThreads); }

  // One past the last tile of [first, end) in which this thread's slots name a position; 0: none.
  __device__ int last_tile(int stream, int token, int first, int end) const {
    const GatherStream& from = params_.streams[stream];
    const std::int32_t* indices = from.indices + token * from.indices_stride;
    const SlotLimits limits = this->limits(stream);
    const int slots = min(limits.slots, end * kKeys);
    int found = 0;
    for (int slot = first * kKeys + thread(); slot < slots; slot += kScans * kThreads) {
      std::uint32_t positions[kScans];
#pragma unroll
      for (int i = 0; i < kScans; ++i) {
        const int at = slot + i * kThreads;
        positions[i] = at < slots ? static_cast<std::uint32_t>(__ldg(indices + at)) : ~0U;
      }
#pragma unroll
      for (int i = 0; i < kScans; ++i) {
        if (positions[i] < limits.keys) found = (slot + i * kThreads) / kKeys + 1;
      }
    }
    return found;
  }

  const SparseParams& params_;
  int sequence_ = -1;
  SlotLimits main_;
  SlotLimits extra_;
};

}  // namespace quire::cuda::sm90::sparse_mla
