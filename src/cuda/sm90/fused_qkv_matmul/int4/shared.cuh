// SPDX-License-Identifier: Apache-2.0
// Shared memory of the int4 kernel.
#pragma once

#include "cuda/common/mma/wgmma.cuh"
#include "cuda/common/pipeline/ring.cuh"
#include "cuda/sm90/fused_qkv_matmul/int4/config.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

template <Int4Config kConfig> struct Int4Shared {
  // One chunk: x as [unit][token][128 bytes], then the panels' codes and sides.
  struct Stage {
    alignas(1024) std::byte x[kConfig.x_bytes()];
    std::byte codes[kConfig.row_groups][kConfig.chunk_steps][kStepCodeBytes];
    std::byte sides[kConfig.row_groups][kConfig.chunk_steps * kMaxSideBytes];
  };
  static_assert(sizeof(Stage) == kConfig.stage_bytes());
  // Sums of a warpgroup, [token][row]; the gap spreads a warp's stores over the banks.
  using Sums = float[kConfig.tokens][kPanelRows + 4];

  union {
    Stage stages[kConfig.stages];
    Sums sums[kConfig.warpgroups()];  // once the last chunk is used up
  };
  std::int64_t kv_offsets[kConfig.tokens];  // byte offset of a token's K row, -1: not stored
  RingBarriers<kConfig.stages> ring;
};

}  // namespace quire::cuda::sm90::fused_qkv_matmul
