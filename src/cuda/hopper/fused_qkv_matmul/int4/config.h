// SPDX-License-Identifier: Apache-2.0
// A compiled int4 kernel of fused_qkv_matmul on Hopper, as a value.
#pragma once

#include "quire/dtype.h"

namespace quire::cuda::hopper {

// A block computes 64 · row_groups columns of Y for `tokens` tokens. Its warpgroups take a panel of 64
// weight rows each, and every k_groups-th step of K.
struct Int4Config {
  DType dtype = DType::bf16;  // of x
  int tokens = 16;            // N of the products
  int row_groups = 1;
  int k_groups = 4;
  int ahead = 8;        // steps of codes on their way to a warpgroup
  int chunk_steps = 4;  // steps of x that one copy brings; divides k_groups
  int stages = 4;       // chunks of x
  int blocks_per_sm = 1;

  // Many tokens need more registers than an even share.
  static constexpr int kLoadRegisters = 24;
  static constexpr int kMultiplyRegisters = 112;
  constexpr bool moves_registers() const { return tokens >= 64; }

  constexpr int warpgroups() const { return row_groups * k_groups; }
  constexpr int threads() const { return 128 * (warpgroups() + 1); }
  // Warps that read a chunk: a warpgroup reads one step of it, or none.
  constexpr int readers() const { return 4 * row_groups * chunk_steps; }
};

}  // namespace quire::cuda::hopper
