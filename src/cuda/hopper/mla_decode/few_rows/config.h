// SPDX-License-Identifier: Apache-2.0
// A compiled kernel for few query rows, as a value.
#pragma once

#include "cuda/hopper/latent_attention/config.h"

namespace quire::cuda::hopper {

struct FewRowsConfig {
  DType latents = DType::bf16;
  int rows = 16;   // of q
  int units = 11;  // of 16 keys, on their way or in use
  // Of a thread of each role; together the 480 that five warpgroups begin with.
  int load_registers = 48;
  int score_registers = 120;
  int value_registers = 96;

  static constexpr int kKeys = 64;      // of a tile
  static constexpr int kUnitKeys = 16;  // a warp's of the scores
  static constexpr int kTileUnits = kKeys / kUnitKeys;
  static constexpr int kBlocks = LatentConfig::kLatent / 64;  // of columns: an instruction's
  static constexpr int kScaleGroups = 4;                      // of latent columns, at most
  static constexpr int kGroups = 2;                           // of each kind
  static constexpr int kGroupWarps = 4;
  static constexpr int kWarps = kGroups * kGroupWarps;  // of each kind
  static constexpr int kThreads = 128 * (2 * kGroups + 1);
  static constexpr int kItems = 3;  // described ahead

  constexpr bool is_fp8() const { return latents != DType::bf16; }
  constexpr int weight_copies() const { return is_fp8() ? kScaleGroups : 1; }
  // How 16 rows stand in shared memory, so that eight rows' pieces of 16 bytes are in different banks. e4m3: an odd
  // number of 16 bytes apart. bf16: in slabs of 64 columns, swizzle b128. (Spaced out too, by boxes wider than
  // the rows, memory gave 4 % less: 289 against 279 µs for 1.2 GB that nobody uses.)
  static constexpr int kFp8Pitch = 656;  // for rows of 576, 640 and 656 bytes
  static constexpr int kSlabs = (LatentConfig::kLatent + LatentConfig::kRope) / 64;
  static constexpr int kSlabBytes = kUnitKeys * 64 * 2;
  constexpr int unit_bytes() const {
    return is_fp8() ? kUnitKeys * kFp8Pitch : kSlabs * kSlabBytes;
  }
  // From 64 columns of a row to the next 64.
  constexpr int block_pitch() const { return is_fp8() ? 64 : kSlabBytes; }
  constexpr int column_bytes() const { return is_fp8() ? 1 : 2; }
};

}  // namespace quire::cuda::hopper
