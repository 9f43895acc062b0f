// SPDX-License-Identifier: Apache-2.0
// A warpgroup: one thread keeps the ring full of chunks of x, codes and sides, three warps find where
// each token's K row stands in the pages.
#pragma once

#include "cuda/common/matmul/dense_rows.cuh"
#include "cuda/common/pipeline/tma.cuh"
#include "cuda/sm90/fused_qkv_matmul/int4/config.h"
#include "cuda/sm90/fused_qkv_matmul/int4/shared.cuh"

namespace quire::cuda::sm90::fused_qkv_matmul {

template <Int4Config kConfig>
__device__ void load_chunks(const Int4Params& params, Int4Shared<kConfig>& shared, int first_panel,
                            int first_token) {
  const Int4Order& order = params.order;
  // Read by one token tile only: not to be kept.
  const L2Hint hint = gridDim.y == 1 ? L2Hint::EVICT_FIRST : L2Hint::EVICT_NORMAL;
  RingPosition<kConfig.stages> at;
  for (int step = 0; step < order.steps; step += kConfig.chunk_steps, at.advance()) {
    const int steps = min(kConfig.chunk_steps, order.steps - step);
    const int code_bytes = steps * kStepCodeBytes;
    const int side_bytes = steps * order.side_bytes();
    auto& stage = shared.stages[at.stage];
    FullBarrier& full = shared.ring.full[at.stage];
    shared.ring.wait_empty(at);
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
    load_box({.map = &params.x, .shared = stage.x, .full = &full, .hint = L2Hint::EVICT_LAST}, 0,
             first_token, 2 * step);
  }
}

template <Int4Config kConfig>
__device__ void load_role(const Int4Params& params, Int4Shared<kConfig>& shared, int first_panel,
                          int first_token) {
  const int thread = static_cast<int>(threadIdx.x % 128);
  // Of weights too: a loop that begins with some of them has no uniform registers, which costs 70B at 128 tokens a tenth.
  cudaGridDependencySynchronize();
  if (thread < 32) {
    if (cute::elect_one_sync()) load_chunks(params, shared, first_panel, first_token);
    __syncwarp();  // the barriers to come are the whole warp's
  } else {
    for (int row = thread - 32; row < kConfig.tokens; row += 96) {
      shared.kv_offsets[row] = stored_tokens(params.outputs).row_offset(first_token + row);
    }
  }
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
