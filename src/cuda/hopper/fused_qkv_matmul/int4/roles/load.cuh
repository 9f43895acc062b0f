// SPDX-License-Identifier: Apache-2.0
// A warpgroup: one thread keeps the ring full of chunks of x and of the panels' scales and zeros,
// three warps find where each token's K row stands in the pages.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/int4/params.h"
#include "cuda/hopper/fused_qkv_matmul/int4/shared.cuh"
#include "cuda/hopper/fused_qkv_matmul/kv_offset.cuh"
#include "cuda/hopper/tile/bulk_copy.cuh"

namespace quire::cuda::hopper {

template <Int4Config kConfig>
__device__ void load_chunks(const Int4Params& params, Int4Shared<kConfig>& shared, int first_panel,
                            int first_token) {
  using Shared = Int4Shared<kConfig>;
  const Int4Order& order = params.order;
  const int x_bytes = Shared::kBlocks * params.box_tokens * kRowBytes;
  RingPosition<kConfig.stages> at;
  for (int step = 0; step < order.steps; step += kConfig.chunk_steps, at.advance()) {
    const int side_bytes = min(kConfig.chunk_steps, order.steps - step) * order.side_bytes();
    FullBarrier& full = shared.ring.full[at.stage];
    shared.ring.wait_empty(at);
    full.arrive_and_expect_tx(x_bytes + kConfig.row_groups * side_bytes);
    load_box(
        {.map = &params.x, .shared = shared.x[at.stage], .full = &full, .hint = L2Hint::EVICT_LAST},
        0, first_token, 2 * step);
#pragma unroll
    for (int group = 0; group < kConfig.row_groups; ++group) {
      const int panel = min(first_panel + group, order.panels - 1);
      load_bytes(params.weight + order.side_offset(panel, step), shared.sides[at.stage][group],
                 side_bytes, full);
    }
  }
}

template <Int4Config kConfig>
__device__ void load_role(const Int4Params& params, Int4Shared<kConfig>& shared, int first_panel,
                          int first_token) {
  const int thread = static_cast<int>(threadIdx.x % 128);
  if (thread < 32) {
    if (cute::elect_one_sync()) load_chunks(params, shared, first_panel, first_token);
    __syncwarp();  // the barriers to come are the whole warp's
  } else {
    for (int row = thread - 32; row < kConfig.tokens; row += 96) {
      shared.kv_offsets[row] = kv_offset(params.outputs, first_token + row);
    }
  }
}

}  // namespace quire::cuda::hopper
