// SPDX-License-Identifier: Apache-2.0
// Attention over latent rows (512 latent columns that are keys and values, 64 rope columns that are
// keys only), as the consumers of every op that has them see it.
//
// Two thread blocks of a cluster work on the same query rows and the same keys; the columns are
// divided between them. Block c keeps columns [256c, 256c + 256) of the latent and 32 of the rope
// part, of q and of every key: no byte is loaded twice, and a stage is half as large, so that three or
// four fit beside q. Each block has half of every score; the halves are exchanged through distributed
// shared memory, and both blocks go on with the same scores to their own 256 columns of the output.
#pragma once

#include <cstdint>

#include "quire/dtype.h"

namespace quire::cuda::hopper {

// row_groups 1: up to 64 query rows; the two warpgroups take tiles of keys in turn, their sums are
// joined when an item ends. 2: up to 128 rows, 64 for each warpgroup, which both take every tile.
struct LatentConfig {
  DType dtype = DType::bf16;  // of q and of the keys in shared memory
  int row_groups = 1;
  int stages = 4;      // even where row_groups is 1: a stage is always the same warpgroup's
  int raw_stages = 2;  // tiles of rows as the cache has them, on their way

  static constexpr int kCluster = 2;
  static constexpr int kKeys = 64;  // of a tile
  static constexpr int kLatent = 512;
  static constexpr int kRope = 64;
  static constexpr int kColumns = kLatent / kCluster;  // of the values, in this block
  static constexpr int kSlabColumns = 64;              // 128 bytes: a swizzled row
  static constexpr int kSlabs = kColumns / kSlabColumns;
  static constexpr int kTailColumns = kRope / kCluster;
  static constexpr int kTailBytes = kTailColumns * 2;
  static constexpr int kChunks = kColumns * 2 / 16;  // of 16 bytes, in a row's latent columns
  static constexpr int kTailChunks = kTailBytes / 16;
  static constexpr int kGroupRows = 64;
  static constexpr int kWarpgroups = 2;  // that multiply
  static constexpr int kWarps = 4 * kWarpgroups;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kLoadThreads = 128;
  static constexpr int kLoadWarps = kLoadThreads / 32;
  static constexpr int kWarpKeys = kKeys / kLoadWarps;  // of a tile, that a loading warp brings
  static constexpr int kItems = 3;                      // described ahead

  // Of a row to be converted, in this block: e4m3 latents, rope columns of up to 16 bits, scales.
  static constexpr int kRawBytes = kColumns + kTailBytes + 16;

  constexpr int raw_bytes() const { return raw_stages * kKeys * kRawBytes; }
  static constexpr int kLoadRegisters = 72;
  static constexpr int kAttendRegisters = 216;
  constexpr int rows() const { return kGroupRows * row_groups; }
  // Tiles from one of a warpgroup's to its next.
  constexpr int tile_step() const { return row_groups == 1 ? kWarpgroups : 1; }
};

}  // namespace quire::cuda::hopper
