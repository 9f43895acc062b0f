// SPDX-License-Identifier: Apache-2.0
// A compiled sparse_mla kernel, as a value, and the sizes that all of them share.
#pragma once

#include <cstdint>

namespace quire::cuda::hopper {

// How rows of the cache become the bf16 tile that the tensor cores read.
enum class RowKind : std::uint8_t {
  bf16,  // copied as they are
  fp8,   // e4m3 latent, decoded and scaled on the way; rope bf16 or e4m3
};

struct SparseConfig {
  RowKind rows = RowKind::bf16;

  static constexpr int kHeads = 64;    // query rows of a thread block: heads of one token
  static constexpr int kKeys = 64;     // of a tile
  static constexpr int kLatent = 512;  // columns of a row that are values too
  static constexpr int kRope = 64;
  static constexpr int kSlabColumns = 64;  // 128 bytes of bf16
  static constexpr int kSlabs = (kLatent + kRope) / kSlabColumns;
  static constexpr int kHalfColumns = kLatent / 2;
  static constexpr int kHalfSlabs = kHalfColumns / kSlabColumns;
  static constexpr int kStages = 2;  // tiles on their way or in use

  // Warpgroups: one scores, weighs and sums the left half of the values, one sums the right half, one
  // gathers rows. Registers of a thread of each; together the 512 that three warpgroups may have.
  static constexpr int kWarpgroup = 128;
  static constexpr int kThreads = 3 * kWarpgroup;
  static constexpr int kScoreRegisters = 208;
  static constexpr int kSumRegisters = 176;
  static constexpr int kGatherRegisters = 120;
};

}  // namespace quire::cuda::hopper
