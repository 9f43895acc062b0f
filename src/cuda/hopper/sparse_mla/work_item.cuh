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

}  // namespace quire::cuda::hopper
