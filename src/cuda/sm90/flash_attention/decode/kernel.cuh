// SPDX-License-Identifier: Apache-2.0
// Attention of few new tokens per sequence over long caches: bound by the bytes of K and V.
//
//   warps 0 – 7    attend  16 keys of a stage each; rows are tokens × heads of one KV head
//   warps 8 – 11   load    walk the CTA's part of the work, copy rows of pages into the ring
//
//   ring       full: every loading thread's copies   empty: the warps that took the stage
//   item ring  full: the same, and the description   empty: all eight warps, queries in registers
#pragma once

#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/flash_attention/decode/params.h"
#include "cuda/sm90/flash_attention/decode/roles/attend.cuh"
#include "cuda/sm90/flash_attention/decode/roles/load.cuh"

namespace quire::cuda::sm90::flash_attention {

// Variant: a named type with a kConfig.
template <typename Variant>
__global__ void __launch_bounds__(DecodeConfig::kThreads + DecodeConfig::kLoadThreads, 1)
    decode_kernel(const __grid_constant__ DecodeParams params) {
  constexpr DecodeConfig kConfig = Variant::kConfig;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<DecodeShared<kConfig>*>(memory);
  const int warp = warp_in_block();
  // The kernel that merges pieces may take its place beside this one and wait there.
  cudaTriggerProgrammaticLaunchCompletion();
  if (threadIdx.x == 0) {
    shared.init();
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  if (warp >= DecodeConfig::kWarps) {
    cutlass::arch::warpgroup_reg_dealloc<DecodeConfig::kLoadRegisters>();
    LoadRole<kConfig>(params, shared).run();
  } else {
    cutlass::arch::warpgroup_reg_alloc<DecodeConfig::kAttendRegisters>();
    AttendRole<kConfig>(params, shared, warp).run();
  }
}

template <typename Variant> void launch_decode(const DecodeParams& params, cudaStream_t stream) {
  static_assert(sizeof(DecodeShared<Variant::kConfig>) <= 227 * 1024);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(params.split.blocks << params.lines.bits)),
      .block = dim3(DecodeConfig::kThreads + DecodeConfig::kLoadThreads),
      .shared_bytes = sizeof(DecodeShared<Variant::kConfig>)};
  launch(decode_kernel<Variant>, shape, stream, params);
}

}  // namespace quire::cuda::sm90::flash_attention
