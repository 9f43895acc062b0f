// SPDX-License-Identifier: Apache-2.0
// A compiled kernel for few query rows, as a value.
#pragma once

#include "cuda/hopper/latent_attention/config.h"

namespace quire::cuda::hopper {

struct FewRowsConfig {
  DType latents = DType::bf16;
  int group_rows = 16;  // of q, that a warpgroup has
  int tile_groups = 1;  // warpgroups that take tiles in turn, or
  int row_groups = 1;   // that have rows of their own and every tile
  int slots = 5;        // of the ring

  static constexpr int kKeys = 64;                             // of a tile
  static constexpr int kBlocks = LatentConfig::kLatent / 64;   // of columns: an instruction's
  static constexpr int kScaleGroups = 4;                       // of latent columns, at most
  static constexpr int kGroupWarps = 4;
  static constexpr int kItems = 3;  // described ahead
  // Of three warpgroups; two have as many as they want.
  static constexpr int kLoadRegisters = 56;
  static constexpr int kAttendRegisters = 224;

  constexpr int rows() const { return group_rows * row_groups; }
  constexpr int groups() const { return tile_groups * row_groups; }
  constexpr int threads() const { return 128 * (groups() + 1); }
  constexpr int weight_copies() const { return latents == DType::bf16 ? 1 : kScaleGroups; }
  constexpr int tile_slots() const { return latents == DType::bf16 ? 2 : 1; }
};

}  // namespace quire::cuda::hopper
