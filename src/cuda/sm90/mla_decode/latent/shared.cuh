// SPDX-License-Identifier: Apache-2.0
// What the roles of every kernel over latent rows say to each other.
#pragma once

#include <cstddef>

#include "cuda/common/mma/wgmma.cuh"
#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/split_kv/scan_line.cuh"
#include "cuda/sm90/mla_decode/latent/config.h"

namespace quire::cuda::sm90::mla_decode {

// A piece of an item: query rows × a run of tiles of keys.
struct LatentItem {
  int tiles;        // 0: there are no more items
  int first_key;    // of tile 0
  int num_keys;     // of the sequence
  int position;     // of the first row's token
  int first_token;  // row of q of the first row
  int rows;         // in use
  long long slot;   // of the workspace; -1: the piece is the whole item
};

// Where 16-byte chunk `chunk` of a row stands in a tile of 128-byte rows, and of 64-byte rows.
__device__ inline int swizzle_column_offset(int row, int chunk) {
  return row * kRowBytes + ((chunk ^ row) % 8) * 16;
}
__device__ inline int tail_offset(int row, int chunk) {
  return row * (kRowBytes / 2) + ((chunk ^ (row / 2)) % 4) * 16;
}

}  // namespace quire::cuda::sm90::mla_decode
