// SPDX-License-Identifier: Apache-2.0
// Shared memory of the int4 kernel for few tokens: this, then the stages of x.
#pragma once

#include <cstddef>

#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/pipeline/tma.cuh"
#include "cuda/sm90/fused_qkv_matmul/int4/decode.cuh"
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

// A step's codes and sides on their way from memory to the registers of the thread that decodes them. A warp reads
// 512 bytes in a row, once and for itself: shared memory would only be on the way.

// Marked to be evicted first: nobody else will read it.
__device__ inline uint4 load_once(const std::byte* from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from), "l"(static_cast<std::uint64_t>(L2Hint::EVICT_FIRST)));
  return value;
}

__device__ inline void load_pair(const std::byte* from, DType scale_dtype, PairWords& pair) {
  asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];"
               : "=r"(pair.first.x), "=r"(pair.first.y)
               : "l"(from));
  if (scale_dtype == DType::f32) {
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(pair.second) : "l"(from + 8));
  }
}

template <int kGroups> struct StepCodes {
  uint4 units[2];
  PairWords sides[kGroups];

  // From where the thread's own begin in the step.
  __device__ void load(const std::byte* codes, const std::byte* pairs, const Int4Order& order) {
#pragma unroll
    for (int unit = 0; unit < 2; ++unit) units[unit] = load_once(codes + unit * kUnitBytes);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      load_pair(pairs + group * kPanelPairs * order.pair_bytes(), order.scale_dtype, sides[group]);
    }
  }
  __device__ std::uint32_t word(int index) const {
    const uint4& unit = units[index / 4];
    const std::uint32_t words[4] = {unit.x, unit.y, unit.z, unit.w};
    return words[index % 4];
  }
};

}  // namespace quire::cuda::sm90::fused_qkv_matmul
