// SPDX-License-Identifier: Apache-2.0
// Shared memory of the int4 kernel.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/int4/config.h"
#include "cuda/hopper/fused_qkv_matmul/int4/packed_order.h"
#include "cuda/hopper/tile/ring.cuh"
#include "cuda/hopper/tile/wgmma.cuh"

namespace quire::cuda::hopper {

template <Int4Config kConfig> struct Int4Shared {
  static constexpr int kBlocks = 2 * kConfig.chunk_steps;  // of 64 columns in a chunk
  // Sums of a warpgroup, [token][row]; the gap spreads a warp's stores over the banks.
  static constexpr int kSumStride = kPanelRows + 4;
  using Sums = float[kConfig.tokens][kSumStride];

  alignas(1024) std::byte x[kConfig.stages][kBlocks * kConfig.tokens * kRowBytes];
  // A thread's codes come to its own 16 bytes of each unit: nobody else waits for them.
  union {
    alignas(128) uint4 codes[kConfig.warpgroups()][kConfig.ahead][2][128];
    Sums sums[kConfig.warpgroups()];  // once the codes are used up
  };
  alignas(
      128) std::byte sides[kConfig.stages][kConfig.row_groups][kConfig.chunk_steps * kMaxSideBytes];
  std::int64_t kv_offsets[kConfig.tokens];  // byte offset of a token's K row, -1: not stored
  RingBarriers<kConfig.stages> ring;        // of x and sides
};

}  // namespace quire::cuda::hopper
