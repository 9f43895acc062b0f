// SPDX-License-Identifier: Apache-2.0
// One thread: the head's weights once, then rows for as long as there are.
#pragma once

#include "cuda/hopper/mla_prefill/stationary/shared.cuh"
#include "cuda/hopper/tile/tma.cuh"

namespace quire::cuda::hopper {

__device__ inline void load_weights(const StationaryParams& params, StationaryShared& shared,
                                    int head, int block) {
  FullBarrier& full = shared.weight_full[block];
  full.arrive_and_expect_tx(sizeof(shared.weight[block]));
  load_box({.map = &params.weight,
            .shared = shared.weight[block],
            .full = &full,
            .hint = L2Hint::EVICT_FIRST},
           block * kRowBytes, head * StationaryShared::kColumns);
}

__device__ inline void load_step(const StationaryParams& params, StationaryShared& shared, int row,
                                 int block, const RingPosition<StationaryShared::kSlots>& at) {
  shared.ring.wait_empty(at);
  FullBarrier& full = shared.ring.full[at.stage];
  full.arrive_and_expect_tx(sizeof(shared.x[at.stage]));
  load_box(
      {.map = &params.x, .shared = shared.x[at.stage], .full = &full, .hint = L2Hint::EVICT_LAST},
      block * kRowBytes, row);
}

// The weights are an argument of the call: they come while the rows are still being gathered.
__device__ inline void load_rows(const StationaryParams& params, StationaryShared& shared,
                                 const StationaryRows& rows) {
  const int weight_blocks = rows.steps > 0 ? StationaryParams::kBlocks : 0;
  for (int block = 0; block < weight_blocks; ++block) {
    load_weights(params, shared, rows.head, block);
  }
  cudaGridDependencySynchronize();
  RingPosition<StationaryShared::kSlots> at;
  constexpr int kTogether = StationaryRows::kTogether;
  const int steps = (rows.steps + kTogether - 1) / kTogether * kTogether;
  for (int step = 0; step < steps; ++step) {
    for (int block = 0; block < StationaryParams::kBlocks; ++block, at.advance()) {
      load_step(params, shared, rows.row_of(min(step, rows.steps - 1)), block, at);
    }
  }
}

}  // namespace quire::cuda::hopper
