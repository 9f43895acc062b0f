// SPDX-License-Identifier: Apache-2.0
// K and V of one head for many rows.
//
//   warp 0            load      the weights once, rows into the ring
//   warps 1 – 3       rotate    q's rope columns, if asked to
//   warpgroups 1, 2   multiply  64 rows × K, or × V, at a time, and store
#pragma once

#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/mla_prefill/rotate_queries.cuh"
#include "cuda/sm90/mla_prefill/stationary/load.cuh"
#include "cuda/sm90/mla_prefill/stationary/multiply.cuh"

namespace quire::cuda::sm90::mla_prefill {

inline constexpr int kStationaryThreads = 128 * (1 + StationaryShared::kParts);

__device__ inline void begin_stationary(const StationaryParams& params, StationaryShared& shared,
                                        const StationaryRows& rows) {
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    prefetch(params.x);
    prefetch(params.weight);
    prefetch(params.y);
    shared.init();
    shared.rows = rows;
    cutlass::arch::fence_barrier_init();
  }
  const int block = thread / 2;
  if (block < StationaryParams::kBlocks) {
    const std::int64_t row = 2 * rows.head + thread % 2;
    shared.weight_scales[thread % 2][block] =
        __ldg(params.weight_scales + row * params.weight_scale_strides[0] +
              block * params.weight_scale_strides[1]);
  }
  __syncthreads();
}

// By a warp of the first warpgroup.
template <DType kDType>
__device__ void load_or_rotate(const StationaryParams& params, StationaryShared& shared,
                               const StationaryRows& rows) {
  constexpr int kRotators = 3;  // warps
  const int warp = warp_in_block();
  if (warp == 0) {
    if (cute::elect_one_sync()) load_rows(params, shared, rows);
  } else if (params.rotation.q != nullptr) {
    QueryRotator<kDType>(params.rotation, static_cast<int>(blockIdx.x) * kRotators + warp - 1,
                         static_cast<int>(gridDim.x) * kRotators)
        .run();
  }
}

template <DType kDType, DType kStored>
__global__ void __launch_bounds__(kStationaryThreads, 1)
    stationary_kernel(const __grid_constant__ StationaryParams params) {
  constexpr int kProducerRegisters = 72;
  constexpr int kConsumerRegisters = 216;
  cudaTriggerProgrammaticLaunchCompletion();
  const StationaryRows rows(params);
  if (rows.steps == 0 && params.rotation.q == nullptr) {
    cudaGridDependencySynchronize();  // who waits for this kernel means those before it too
    return;
  }
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<StationaryShared*>(memory);
  begin_stationary(params, shared, rows);
  const int warpgroup = warpgroup_in_block();
  if (warpgroup == 0) {
    cutlass::arch::warpgroup_reg_dealloc<kProducerRegisters>();
    load_or_rotate<kDType>(params, shared, rows);
  } else {
    cutlass::arch::warpgroup_reg_alloc<kConsumerRegisters>();
    StationaryConsumer<kStored>(params, shared, warpgroup - 1).run();
  }
}

template <DType kDType, DType kStored>
void launch_stationary(const StationaryParams& params, cudaStream_t stream) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(params.heads * params.splits)),
                          .block = dim3(kStationaryThreads),
                          .shared_bytes = sizeof(StationaryShared),
                          .overlaps_previous = true};
  launch(stationary_kernel<kDType, kStored>, shape, stream, params);
}

}  // namespace quire::cuda::sm90::mla_prefill
