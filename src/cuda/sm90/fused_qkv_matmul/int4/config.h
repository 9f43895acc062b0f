// SPDX-License-Identifier: Apache-2.0
// A compiled int4 kernel of fused_qkv_matmul on Hopper, as a value.
#pragma once

#include "cuda/common/matmul/int4/packed_order.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

// A block computes 64 · row_groups columns of Y for `tokens` tokens. Its warpgroups take a panel of 64
// weight rows each, and every k_groups-th step of K.
struct Int4Config {
  DType dtype = DType::bf16;  // of x
  int tokens = 16;            // N of the products
  int row_groups = 1;
  int k_groups = 4;
  int chunk_steps = 4;  // steps that one copy brings; divides k_groups
  int stages = 5;       // chunks; whole rounds of the warpgroups
  int blocks_per_sm = 1;

  // Many tokens need more registers than an even share.
  static constexpr int kLoadRegisters = 24;
  static constexpr int kMultiplyRegisters = 112;
  constexpr bool moves_registers() const { return tokens >= 64; }

  constexpr int warpgroups() const { return row_groups * k_groups; }
  constexpr int threads() const { return 128 * (warpgroups() + 1); }
  // Warps that read a chunk: a warpgroup reads one step of it, or none.
  constexpr int readers() const { return 4 * row_groups * chunk_steps; }
  // Of x in a chunk, and of a chunk of x, codes and sides.
  constexpr int unit_bytes() const { return tokens * 128; }
  constexpr int x_bytes() const { return 2 * chunk_steps * unit_bytes(); }
  constexpr int stage_bytes() const {
    const int panel = chunk_steps * (kStepCodeBytes + kMaxSideBytes);
    return (x_bytes() + row_groups * panel + 1023) / 1024 * 1024;
  }
};

}  // namespace quire::cuda::sm90::fused_qkv_matmul
