// SPDX-License-Identifier: Apache-2.0
// Which rows a thread block projects, 64 at a time.
#pragma once

#include "cuda/common/mma/wgmma.cuh"
#include "cuda/sm90/mla_prefill/stationary/params.h"

namespace quire::cuda::sm90::mla_prefill {

struct StationaryRows {
  int head;
  int first;  // rows from here
  int end;    // to here
  int steps;

  static constexpr int kTogether = 2;  // steps: one that is left over is multiplied twice

  __device__ explicit StationaryRows(const StationaryParams& params) {
    const int live = min(max(*params.live_rows, 0), params.rows);
    const int all_steps = (live + kWgmmaRows - 1) / kWgmmaRows;
    const int share = (all_steps + params.splits - 1) / params.splits;
    head = static_cast<int>(blockIdx.x) % params.heads;
    first = static_cast<int>(blockIdx.x) / params.heads * share * kWgmmaRows;
    end = min(live, first + share * kWgmmaRows);
    steps = max(0, (end - first + kWgmmaRows - 1) / kWgmmaRows);
    skew_ = steps > 0 ? static_cast<int>(std::int64_t{head} * steps / params.heads) : 0;
  }
  // Blocks begin at different rows: heads stand a power of two apart, and those that write at the
  // same distance from their beginnings meet in the same channels of memory.
  __device__ int row_of(int step) const {
    const int turned = step + skew_;
    return first + (turned < steps ? turned : turned - steps) * kWgmmaRows;
  }

 private:
  int skew_;
};

}  // namespace quire::cuda::sm90::mla_prefill
