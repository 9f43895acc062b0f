// SPDX-License-Identifier: Apache-2.0
// fused_qkv_matmul with packed int4 weights and up to 16 tokens: Yᵀ = W · Xᵀ by products of a warp. Every
// multiprocessor has as many quarters of panels (16 weight rows) as any other, give or take one, and reads them with
// all of its warps from the first moment on.
//
//   warps 0 –        multiply  a quarter's codes, every parts-th step, times x
//   the last but one look up   each token's row in the pages
//   the last one     bring     x
#pragma once

#include "cuda/common/matmul/dense_rows.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/fused_qkv_matmul/int4/few_tokens/config.h"
#include "cuda/sm90/fused_qkv_matmul/int4/few_tokens/multiply.cuh"
#include "cuda/sm90/fused_qkv_matmul/int4/store_tokens.cuh"

namespace quire::cuda::sm90::fused_qkv_matmul {

struct BlockQuarters {
  int first;
  int count;

  __device__ BlockQuarters(const FewTokensParams& params, int block) {
    const auto blocks = static_cast<int>(gridDim.x);
    first = block * params.quarters / blocks;
    count = (block + 1) * params.quarters / blocks - first;
  }
};

// One thread: x from step `first` on, up to `end`.
template <FewTokensConfig kConfig>
__device__ void bring_x(const FewTokensParams& params, FewTokensShared<kConfig>& shared,
                        XPosition& at, int first, int end) {
  const int bytes = 2 * params.parts * params.product.outputs.tokens * kUnitColumns * 2;
  for (int step = first; step < end; step += params.parts, at.advance()) {
    FullBarrier& full = shared.ring.full[at.stage];
    shared.ring.empty[at.stage].wait(at.phase ^ 1);
    full.arrive_and_expect_tx(bytes);
    load_box({.map = &params.product.x,
              .shared = shared.x(at.stage, params.stage_bytes),
              .full = &full,
              .hint = L2Hint::EVICT_LAST},
             0, 0, 2 * step);
  }
}

// The last warp. What there is room for is on its way before the others have come to the barrier.
template <FewTokensConfig kConfig>
__device__ void bring_role(const FewTokensParams& params, FewTokensShared<kConfig>& shared,
                           int workers) {
  const int steps = params.product.order.steps;
  const int early = min(params.parts * params.stages, steps);
  const bool leads = threadIdx.x % 32 == 0;
  XPosition at{.stages = params.stages};
  if (leads) {
    shared.ring.init(1, workers);
    cutlass::arch::fence_barrier_init();
    cudaGridDependencySynchronize();
    bring_x(params, shared, at, 0, early);
  }
  __syncthreads();
  if (leads) bring_x(params, shared, at, early, steps);
  __syncwarp();
}

template <FewTokensConfig kConfig>
__device__ void leave_sums(const float (&totals)[kConfig.tokens / 8][4],
                           float (&to)[kConfig.tokens][kQuarterRows + 4]) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int eight = 0; eight < kConfig.tokens / 8; ++eight) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[8 * eight + lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] = totals[eight][i];
    }
  }
}

// By all threads: sums over parts of K meet in the order of the parts.
template <FewTokensConfig kConfig>
__device__ void store_quarters(const FewTokensParams& params,
                               const FewTokensShared<kConfig>& shared, const BlockQuarters& own) {
  constexpr int kRuns = kQuarterRows / 8;
  const QkvOutputs& outputs = params.product.outputs;
  for (auto index = static_cast<int>(threadIdx.x); index < outputs.tokens * own.count * kRuns;
       index += static_cast<int>(blockDim.x)) {
    const int token = index / (own.count * kRuns);
    const int run_in_block = index % (own.count * kRuns);
    const int warp = run_in_block / kRuns * params.parts;
    const int row = run_in_block % kRuns * 8;
    const int column = (own.first + run_in_block / kRuns) * kQuarterRows + row;
    store_token_run(outputs, token, column, shared.kv_offsets[token], [&](float(&run)[8]) {
      take_part(shared.sums[warp][token] + row, run);
#pragma unroll 1
      for (int part = 1; part < params.parts; ++part) {
        float more[8];
        take_part(shared.sums[warp + part][token] + row, more);
#pragma unroll
        for (int i = 0; i < 8; ++i) run[i] += more[i];
      }
    });
  }
}

// A warp's quarter, from the first codes on; the barriers are there when all have come to the first __syncthreads.
template <FewTokensConfig kConfig, int kGroups>
__device__ void multiply_quarter(const FewTokensParams& params, FewTokensShared<kConfig>& shared,
                                 int first_quarter, int warp) {
  QuarterWarp<kConfig, kGroups> quarter(params, first_quarter + warp / params.parts,
                                        warp % params.parts);
  __syncthreads();
  quarter.run(shared);
  leave_sums<kConfig>(quarter.totals, shared.sums[warp]);
}

template <FewTokensConfig kConfig>
__device__ void multiply_any(const FewTokensParams& params, FewTokensShared<kConfig>& shared,
                             int first_quarter, int warp) {
  switch (params.product.order.groups_per_step) {
    case 1:
      return multiply_quarter<kConfig, 1>(params, shared, first_quarter, warp);
    case 2:
      return multiply_quarter<kConfig, 2>(params, shared, first_quarter, warp);
    default:
      return multiply_quarter<kConfig, 4>(params, shared, first_quarter, warp);
  }
}

template <typename Variant>
__global__ void __launch_bounds__(32 * (kMostQuarterWarps + kOtherWarps), 1)
    few_tokens_kernel(const __grid_constant__ FewTokensParams params) {
  constexpr FewTokensConfig kConfig = Variant::kConfig;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<FewTokensShared<kConfig>*>(memory);
  const BlockQuarters own(params, static_cast<int>(blockIdx.x));
  const int warp = warp_in_block();
  const int last_warp = static_cast<int>(blockDim.x / 32) - 1;
  const int workers = own.count * params.parts;
  if (warp < workers) {
    multiply_any(params, shared, own.first, warp);
  } else if (warp == last_warp) {
    bring_role(params, shared, workers);
  } else {
    __syncthreads();
    cudaGridDependencySynchronize();
    const auto token = static_cast<int>(threadIdx.x % 32);
    if (warp == last_warp - 1 && token < kConfig.tokens) {
      shared.kv_offsets[token] = stored_tokens(params.product.outputs).row_offset(token);
    }
  }
  __syncthreads();
  // Once more, so that it needs no registers meanwhile.
  store_quarters(params, shared, BlockQuarters(params, opaque(static_cast<int>(blockIdx.x))));
}

template <typename Variant>
void launch_few_tokens(const FewTokensParams& params, const FewTokensLaunch& where) {
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(where.blocks)),
      .block = dim3(static_cast<unsigned>(32 * (where.warps + kOtherWarps))),
      .shared_bytes = sizeof(FewTokensShared<Variant::kConfig>) +
                      static_cast<std::size_t>(params.stages) * params.stage_bytes,
      .overlaps_previous = params.product.overlaps_previous};
  launch(few_tokens_kernel<Variant>, shape, where.stream, params);
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
