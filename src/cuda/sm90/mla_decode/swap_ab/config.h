// SPDX-License-Identifier: Apache-2.0
// A compiled kernel for few query rows, as a value.
#pragma once

#include "cuda/sm90/mla_decode/params.h"

namespace quire::cuda::sm90::mla_decode {

// What a kernel knows of its rows when it is compiled.
enum class SwapAbKind {
  bf16,        // 1 152 bytes
  fp8,         // e4m3, 576 or 640 bytes: at most one scale for a row, in a tensor of its own
  fp8_block,   // e4m3, 656 bytes: a scale for 128 columns, in the row
  fp8_spaced,  // any of e4m3, which a kernel tells apart when it runs
};

struct SwapAbConfig {
  SwapAbKind kind = SwapAbKind::bf16;
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
  // Bytes from a row of e4m3 to the next, where they are not in swizzle columns.
  static constexpr int kFp8Pitch = 656;

  constexpr bool is_fp8() const { return kind != SwapAbKind::bf16; }
  constexpr DType latents() const { return is_fp8() ? DType::fp8_e4m3 : DType::bf16; }
  // Of latent columns whose keys have scales of their own, and weights times these.
  constexpr int scale_groups() const { return kind == SwapAbKind::fp8_block ? kScaleGroups : 1; }

  // What 16 rows take in shared memory (shared.cuh).
  constexpr int unit_bytes() const {
    constexpr int kBytes[] = {1152, 640, kFp8Pitch, kFp8Pitch};
    return kUnitKeys * kBytes[static_cast<int>(kind)];
  }
};

}  // namespace quire::cuda::sm90::mla_decode
