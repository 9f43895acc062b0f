// SPDX-License-Identifier: Apache-2.0
// The items of the work, by number.
#pragma once

#include "cuda/hopper/sparse_mla/params.h"
#include "cuda/hopper/sparse_mla/shared.cuh"

namespace quire::cuda::hopper {

struct WorkItem {
  int index;
  int token;
  int first_head;
  int first_tile;

  __device__ WorkItem(const SparseWork& work, int item) : index(item) {
    const int piece = item % work.pieces;
    const int tile = item / work.pieces;
    token = tile / work.head_tiles;
    first_head = tile % work.head_tiles * SparseConfig::kHeads;
    first_tile = piece * work.piece_tiles;
  }
};

// The items of a block, in their order: every so many-th, or with the other block of a cluster every so
// many-th pair, of which it has one.
template <int kBlocks> struct ItemWalk {
  const SparseWork& work;
  int at = static_cast<int>(blockIdx.x) / kBlocks;

  __device__ bool is_over() const { return at >= work.items() / kBlocks; }
  __device__ bool is_first() const { return at == static_cast<int>(blockIdx.x) / kBlocks; }
  __device__ void advance() { at += static_cast<int>(gridDim.x) / kBlocks; }
  // Pairs of blocks have neighbouring heads of a token and the same piece.
  __device__ int item() const {
    if constexpr (kBlocks == 1) return at;
    const int rank = static_cast<int>(blockIdx.x) % kBlocks;
    return (at / work.pieces * kBlocks + rank) * work.pieces + at % work.pieces;
  }
};

}  // namespace quire::cuda::hopper
