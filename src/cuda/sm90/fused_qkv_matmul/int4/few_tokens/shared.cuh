// SPDX-License-Identifier: Apache-2.0
// Shared memory of the int4 kernel for few tokens: this, then the stages of x.
#pragma once

#include <cstddef>

#include "cuda/common/pipeline/ring.cuh"
#include "cuda/sm90/fused_qkv_matmul/int4/few_tokens/config.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

template <FewTokensConfig kConfig> struct alignas(1024) FewTokensShared {
  // [warp][token][row]; the gap spreads a warp's stores over the banks.
  float sums[kMostQuarterWarps][kConfig.tokens][kQuarterRows + 4];
  std::int64_t kv_offsets[kConfig.tokens];  // byte offset of a token's K row, -1: not stored
  RingBarriers<kMostXStages> ring;

  // A stage is [unit of 64 columns][token][128 bytes], swizzled.
  __device__ std::byte* x(int stage, int stage_bytes) {
    return reinterpret_cast<std::byte*>(this + 1) + stage * stage_bytes;
  }
};

// Where a role stands in a ring whose length the launch decides.
struct XPosition {
  int stages;
  int stage = 0;
  std::uint32_t phase = 0;

  __device__ void advance() {
    if (++stage == stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

}  // namespace quire::cuda::sm90::fused_qkv_matmul
