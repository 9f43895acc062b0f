// SPDX-License-Identifier: Apache-2.0
// A compiled decode kernel, as a value.
#pragma once

#include <bit>
#include <cstdint>

#include "quire/dtype.h"

namespace quire::cuda {

// A block is four warps that load and eight that multiply. A stage holds keys() keys, K and V; four
// warps, a set, take 16 of its keys each. Up to 16 query rows (tokens × heads of one KV head), the two
// sets take stages in turn, so that a stage is always the same set's; beyond, each set has its own 16
// rows of every stage. Of heads wider than 256, accumulators of all columns do not fit a warp: the four
// warps of a set share the columns of 16 keys instead (column_warps), and add up their scores.
struct DecodeConfig {
  DType dtype = DType::bf16;  // of the cache
  int swizzle_columns = 2;    // of 128 bytes in a row of the cache
  int column_warps = 1;       // that share the columns of a key: 1 or kSetWarps
  int rows = 8;               // of queries: 8, 16 or 32
  int stages = 4;             // even
  int work_tiles = 3;         // whose queries are in shared memory or on their way

  static constexpr int kWarpKeys = 16;
  static constexpr int kSetWarps = 4;
  static constexpr int kSets = 2;
  static constexpr int kWarps = kSets * kSetWarps;
  static constexpr int kThreads = 32 * kWarps;  // that multiply
  static constexpr int kLoadThreads = 128;
  static constexpr int kTileRows = 16;  // of one product

  constexpr bool is_fp8() const { return dtype == DType::fp8_e4m3; }
  // Registers of a thread: as many for all to begin with as there are; then the warps that load give
  // some of theirs to those that multiply.
  static constexpr int kFirstRegisters = 168;
  static constexpr int kLoadRegisters = 104;
  static constexpr int kAttendRegisters = 200;
  static_assert((kFirstRegisters - kLoadRegisters) * kLoadThreads >=
                (kAttendRegisters - kFirstRegisters) * kThreads);
  constexpr int keys() const { return kSetWarps / column_warps * kWarpKeys; }  // of a stage
  // Columns of a row, those past the head's width zero.
  constexpr int dims() const { return swizzle_columns * (is_fp8() ? 128 : 64); }
  constexpr int warp_columns() const { return dims() / column_warps; }
  constexpr int query_swizzle_columns() const { return dims() / 64; }
  constexpr int side_bytes() const { return keys() * swizzle_columns * 128; }  // K or V of a stage
  constexpr int stage_bytes() const { return 2 * side_bytes(); }
  // Lanes that copy a row, 16 bytes each; those past the row's swizzle columns have nothing to do.
  constexpr int row_lanes() const {
    return 8 * static_cast<int>(std::bit_ceil(static_cast<unsigned>(swizzle_columns)));
  }
  // Neighbouring keys of a stage that a lane copies.
  constexpr int lane_keys() const { return keys() * row_lanes() / kLoadThreads; }
  constexpr int row_sets() const { return rows > kTileRows ? 2 : 1; }
  // Rows of a warp's products that are somebody's.
  constexpr int warp_rows() const { return rows < kTileRows ? rows : kTileRows; }
  constexpr int halves() const { return warp_rows() / 8; }
  // Warps whose sums over different keys make up one row, in each of its columns.
  constexpr int key_warps() const { return kWarps / row_sets() / column_warps; }
  // Rows of a warp whose sums are in shared memory at a time, when a work tile ends.
  constexpr int staged_rows() const { return column_warps == 1 ? warp_rows() : 8; }
};

}  // namespace quire::cuda
