// SPDX-License-Identifier: Apache-2.0
// A warpgroup: one thread keeps the ring full of chunks of x, codes and sides, three warps find where
// each token's K row stands in the pages.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/int4/params.h"
#include "cuda/hopper/fused_qkv_matmul/int4/shared.cuh"
#include "cuda/hopper/fused_qkv_matmul/kv_offset.cuh"
#include "cuda/hopper/tile/bulk_copy.cuh"

namespace quire::cuda::hopper {

// One thread's: a block's chunks of K, in order.
template <Int4Config kConfig> struct ChunkLoader {
  const Int4Params& params;
  Int4Shared<kConfig>& shared;
  int first_panel;
  int first_token;

  // Codes and sides of the chunk that begins with `step`.
  __device__ __forceinline__ void load_weight(int stage_index, int step) {
    const Int4Order& order = params.order;
    const int steps = min(kConfig.chunk_steps, order.steps - step);
    const int code_bytes = steps * kStepCodeBytes;
    const int side_bytes = steps * order.side_bytes();
    // Read by one token tile only: not to be kept.
    const L2Hint hint = gridDim.y == 1 ? L2Hint::EVICT_FIRST : L2Hint::EVICT_NORMAL;
    auto& stage = shared.stages[stage_index];
    FullBarrier& full = shared.ring.full[stage_index];
    full.arrive_and_expect_tx(kConfig.x_bytes() + kConfig.row_groups * (code_bytes + side_bytes));
#pragma unroll
    for (int group = 0; group < kConfig.row_groups; ++group) {
      const int panel = min(first_panel + group, order.panels - 1);
      load_bytes({.from = params.weight + order.code_offset(panel, step),
                  .shared = stage.codes[group],
                  .bytes = code_bytes,
                  .full = &full,
                  .hint = hint});
      load_bytes({.from = params.weight + order.side_offset(panel, step),
                  .shared = stage.sides[group],
                  .bytes = side_bytes,
                  .full = &full,
                  .hint = hint});
    }
  }
  __device__ __forceinline__ void load_x(int stage, int step) {
    load_box({.map = &params.x,
              .shared = shared.stages[stage].x,
              .full = &shared.ring.full[stage],
              .hint = L2Hint::EVICT_LAST},
             0, first_token, 2 * step);
  }
  // While the kernel before this one may still run: the first weights, and behind that one's end their x. Returns the
  // step that follows.
  __device__ int load_early(RingPosition<kConfig.stages>& at) {
    const int early =
        min(params.order.steps, kConfig.chunk_steps * min(params.early_chunks, kConfig.stages));
    int stage = 0;
#pragma unroll 1
    for (int step = 0; step < early; step += kConfig.chunk_steps) load_weight(stage++, step);
    cudaGridDependencySynchronize();
    int step = 0;
#pragma unroll 1
    for (; step < early; step += kConfig.chunk_steps, at.advance()) load_x(at.stage, step);
    return step;
  }
  __device__ void run() {
    RingPosition<kConfig.stages> at;
    int step = params.early_chunks > 0 ? load_early(at) : 0;
    for (; step < params.order.steps; step += kConfig.chunk_steps, at.advance()) {
      shared.ring.wait_empty(at);
      load_weight(at.stage, step);
      load_x(at.stage, step);
    }
  }
};

template <Int4Config kConfig>
__device__ void load_role(const Int4Params& params, Int4Shared<kConfig>& shared, int first_panel,
                          int first_token) {
  const int thread = static_cast<int>(threadIdx.x % 128);
  if (thread < 32) {
    if (cute::elect_one_sync()) {
      ChunkLoader<kConfig>{params, shared, first_panel, first_token}.run();
    }
    __syncwarp();  // the barriers to come are the whole warp's
  } else {
    cudaGridDependencySynchronize();
    for (int row = thread - 32; row < kConfig.tokens; row += 96) {
      shared.kv_offsets[row] = kv_offset(params.outputs, first_token + row);
    }
  }
}

}  // namespace quire::cuda::hopper
