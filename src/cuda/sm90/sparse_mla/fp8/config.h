// SPDX-License-Identifier: Apache-2.0
// A compiled kernel for e4m3 rows, as a value, and the sizes that all of them share.
#pragma once

#include "cuda/sm90/sparse_mla/config.h"

namespace quire::cuda::sm90::sparse_mla {

struct Fp8Config {
  int heads = 32;  // columns of the products
  int stages = 4;  // tiles on their way or in use

  // Registers of a thread; together the 504 that three warpgroups may have.
  int attend_registers = 216;
  int gather_registers = 72;

  static constexpr int kKeys = 64;  // of a tile: rows of a product
  static constexpr int kWarpgroup = 128;
  static constexpr int kThreads = 3 * kWarpgroup;
  static constexpr int kAttenders = 2 * kWarpgroup;
  static constexpr int kWarps = kWarpgroup / 32;
  static constexpr int kWarpKeys = kKeys / kWarps;
  static constexpr int kSwizzleColumns =
      SparseConfig::kSwizzleColumns;  // of queries, 64 columns each
  static constexpr int kGroups = 4;   // of 128 columns, each with its scale
  // In shared memory rows stand 656 bytes apart, whatever their length: eight of them then begin in
  // eight different groups of banks.
  static constexpr int kRowStride = 656;

  constexpr int thread_heads() const { return heads / 4; }  // columns of a thread
  constexpr int query_swizzle_column_bytes() const { return heads * 128; }
};

}  // namespace quire::cuda::sm90::sparse_mla
