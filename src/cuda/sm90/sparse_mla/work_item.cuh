// SPDX-License-Identifier: Apache-2.0
// The items of the work, by number.
#pragma once

#include "cuda/sm90/sparse_mla/params.h"
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
  // Every second item of a block goes through its slots from the last to the first. Slots mostly name
  // positions in ascending order, and all blocks are about as far: what the last items have read is in L2
  // still where the next ones begin, even if there is no room for all rows. Always upwards it is the row
  // that is wanted last of all that stays.
  bool is_backwards = false;

  __device__ bool is_over() const { return at >= work.items() / kBlocks; }
  __device__ bool is_first() const { return at == static_cast<int>(blockIdx.x) / kBlocks; }
  __device__ void advance() {
    at += static_cast<int>(gridDim.x) / kBlocks;
    is_backwards = !is_backwards;
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

}  // namespace quire::cuda::sm90::sparse_mla
