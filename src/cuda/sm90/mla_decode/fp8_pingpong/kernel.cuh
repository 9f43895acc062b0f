// SPDX-License-Identifier: Apache-2.0
// Attention of many query rows of a sequence over latent rows of e4m3 in pages, multiplied as codes.
// Roles and their barriers: shared.cuh.
#pragma once

#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/mla_decode/fp8_pingpong/attend_codes.cuh"
#include "cuda/sm90/mla_decode/fp8_pingpong/load_tiles.cuh"
#include "cuda/sm90/mla_decode/variants.h"

namespace quire::cuda::sm90::mla_decode {

template <Fp8RowKind kKind, int kTerms>
__global__ void __launch_bounds__(Fp8Pingpong::kThreads, 1)
    mla_decode_fp8_pingpong_kernel(const __grid_constant__ MlaDecodeParams params) {
  constexpr Fp8PingpongConfig kConfig = fp8_pingpong(kKind, kTerms);
  using Shared = Fp8PingpongShared<kConfig>;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) prefetch(params.latents);
  if (threadIdx.x == 32) prefetch(params.tails);
  fetch_part(params);
  // The kernel that merges splits may take its place beside this one and wait there.
  cudaTriggerProgrammaticLaunchCompletion();
  if (threadIdx.x == 0) {
    shared.init();
    cutlass::arch::fence_barrier_init();
  }
  // 64 or 128 rows of a work tile.
  const int sharing = params.attend.splits.rows / Fp8Pingpong::kRows;
  const auto block = static_cast<int>(blockIdx.x);
  const int cluster = block >> (__ffs(sharing) - 1);
  const int first_row = (block & (sharing - 1)) * Fp8Pingpong::kRows;
  const int warpgroup = warpgroup_in_block();
  ClusterPart part;
  if (warpgroup == Fp8Pingpong::kAttendGroups) {  // beside the barriers, which it does not need
    part = find_part(params, shared.work_scan, cluster, static_cast<int>(threadIdx.x % 128));
  }
  __syncthreads();
  if (warpgroup == Fp8Pingpong::kAttendGroups) {
    cutlass::arch::warpgroup_reg_dealloc<Fp8Pingpong::kLoadRegisters>();
    const int warp = warp_in_block() % 4;
    const WorkWalk walk(params.batch, params.schedule, part.cuts, part.place, cluster);
    if (warp == 0) LoadCodes<kConfig>(params, shared, part.cuts.total).run(walk);
    if (warp == 1) describe_work(params, shared, first_row, walk);
    if (warp == 2 && kKind != Fp8RowKind::uniform) divide_scales<kConfig>(shared, walk);
  } else {
    cutlass::arch::warpgroup_reg_alloc<Fp8Pingpong::kAttendRegisters>();
    AttendCodes<kConfig>(params.attend, shared, warpgroup, first_row).run();
  }
}

template <Fp8RowKind kKind, typename Variant>
void launch_fp8_pingpong_of(const MlaDecodeParams& params, cudaStream_t stream) {
  using Shared = Fp8PingpongShared<fp8_pingpong(kKind, Variant::kTerms)>;
  static_assert(sizeof(Shared) <= 227 * 1024);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(params.schedule.blocks * Variant::kCluster)),
      .block = dim3(Fp8Pingpong::kThreads),
      .cluster = Variant::kCluster,
      .shared_bytes = sizeof(Shared)};
  launch(mla_decode_fp8_pingpong_kernel<kKind, Variant::kTerms>, shape, stream, params);
}

template <typename Variant>
void launch_fp8_pingpong(const MlaDecodeParams& params, cudaStream_t stream) {
  if (params.format.has_fp8_rope) {
    launch_fp8_pingpong_of<Fp8RowKind::uniform, Variant>(params, stream);
  } else if (params.format.row_scales_offset_bytes < 0) {
    launch_fp8_pingpong_of<Fp8RowKind::token, Variant>(params, stream);
  } else if constexpr (Variant::kTerms == 1) {
    launch_fp8_pingpong_of<Fp8RowKind::block, Variant>(params, stream);
  }
}

}  // namespace quire::cuda::sm90::mla_decode
