// SPDX-License-Identifier: Apache-2.0
// One thread: the head's weights once, then rows for as long as there are.
#pragma once

#include "cuda/common/pipeline/tma.cuh"
#include "cuda/sm90/mla_prefill/stationary/shared.cuh"

namespace quire::cuda::sm90::mla_prefill {

__device__ inline void load_weights(const StationaryParams& params, StationaryShared& shared,
                                    int head, int block) {
  load_box({.map = &params.weight,
            .shared = shared.weight[block],
            .full = &shared.ring.full[block],
            .hint = L2Hint::EVICT_FIRST},
           block * kRowBytes, head * StationaryShared::kColumns);
}

__device__ inline void load_block(const StationaryParams& params, StationaryShared& shared, int row,
                                  int block, int slot) {
  load_box({.map = &params.x,
            .shared = shared.x[slot],
            .full = &shared.ring.full[slot],
            .hint = L2Hint::EVICT_LAST},
           block * kRowBytes, row);
}

// The first rows' blocks, each on one barrier with the weights that it is multiplied by: nobody asks
// for those again. The weights are an argument of the call: the first of them come while the rows are
// still being gathered, the others behind the first rows, which would else wait for all of them.
__device__ inline void load_first(const StationaryParams& params, StationaryShared& shared,
                                  const StationaryRows& rows) {
  constexpr int kBlocks = StationaryParams::kBlocks;
  for (int block = 0; block < kBlocks; ++block) {
    shared.ring.full[block].arrive_and_expect_tx(sizeof(shared.x[0]) + sizeof(shared.weight[0]));
  }
  load_weights(params, shared, rows.head, 0);
  cudaGridDependencySynchronize();
  for (int block = 0; block < kBlocks; ++block) {
    load_block(params, shared, rows.row_of(0), block, block);
  }
  for (int block = 1; block < kBlocks; ++block) load_weights(params, shared, rows.head, block);
}

__device__ inline void load_rows(const StationaryParams& params, StationaryShared& shared,
                                 const StationaryRows& rows) {
  constexpr int kBlocks = StationaryParams::kBlocks;
  constexpr int kTogether = StationaryRows::kTogether;
  if (rows.steps == 0) {
    cudaGridDependencySynchronize();
    return;
  }
  load_first(params, shared, rows);
  RingPosition<StationaryShared::kSlots> at{.stage = kBlocks};
  const int steps = (rows.steps + kTogether - 1) / kTogether * kTogether;
  for (int step = 1; step < steps; ++step) {
    const int row = rows.row_of(min(step, rows.steps - 1));
    for (int block = 0; block < kBlocks; ++block, at.advance()) {
      shared.ring.wait_empty(at);
      shared.ring.full[at.stage].arrive_and_expect_tx(sizeof(shared.x[0]));
      load_block(params, shared, row, block, at.stage);
    }
  }
}

}  // namespace quire::cuda::sm90::mla_prefill
