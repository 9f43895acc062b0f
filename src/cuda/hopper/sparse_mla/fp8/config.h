// SPDX-License-Identifier: Apache-2.0
// A compiled kernel for e4m3 rows, as a value, and the sizes that all of them share.
#pragma once

#include <cstdint>

#include "cuda/hopper/sparse_mla/config.h"

namespace quire::cuda::hopper {

// What the two warpgroups that attend divide among themselves.
enum class Fp8Share : std::uint8_t {
  heads,  // each has half of the block's heads, and all tiles
  keys,   // each has all heads, and every second tile
};

struct Fp8Config {
  int heads = 32;  // of a warpgroup: columns of its products
  Fp8Share share = Fp8Share::heads;
  int stages = 3;  // tiles on their way or in use
  int batch = 1;    // decodings that are multiplied together
  int buffers = 2;  // batches of operands
  int ablate = 0;

  // Registers of a thread; together the 504 that three warpgroups may have.
  int attend_registers = 216;
  int gather_registers = 72;

  static constexpr int kKeys = 64;  // of a tile: rows of a product
  static constexpr int kWarpgroup = 128;
  static constexpr int kThreads = 3 * kWarpgroup;
  static constexpr int kAttenders = 2 * kWarpgroup;
  static constexpr int kWarps = kWarpgroup / 32;
  static constexpr int kWarpKeys = kKeys / kWarps;
  static constexpr int kSlabs = SparseConfig::kSlabs;  // of queries, 64 columns each
  static constexpr int kGroups = 4;                    // of 128 columns, each with its scale
  // In shared memory rows stand 656 bytes apart, whatever their length: eight of them then begin in
  // eight different groups of banks.
  static constexpr int kRowStride = 656;

  constexpr int block_heads() const { return share == Fp8Share::heads ? 2 * heads : heads; }
  constexpr int thread_heads() const { return heads / 4; }  // columns of a thread
  constexpr int query_slab_bytes() const { return block_heads() * 128; }
};

}  // namespace quire::cuda::hopper
