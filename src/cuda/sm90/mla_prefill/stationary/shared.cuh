// SPDX-License-Identifier: Apache-2.0
// Shared memory of the weight-stationary projection.
#pragma once

#include "cuda/common/mma/wgmma.cuh"
#include "cuda/common/pipeline/ring.cuh"
#include "cuda/sm90/mla_prefill/project.h"

namespace quire::cuda::sm90::mla_prefill {

// Which rows a CTA projects, 64 at a time.

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

struct StationaryShared {
  static constexpr int kColumns = 256;       // a head's K and V
  static constexpr int kParts = 2;           // that are multiplied apart: K, V; a warpgroup each
  static constexpr int kSwizzleColumns = 2;  // of 64 columns of 16 bits, of a part that is stored
  static constexpr int kSlots = 8;           // of 64 rows × 128 latents
  static constexpr int kWarps = 4;           // of a part
  static constexpr int kStoredRows = kWgmmaRows / kWarps;

  alignas(1024) std::byte weight[StationaryParams::kBlocks][kColumns * kRowBytes];
  alignas(1024) std::byte x[kSlots][kWgmmaRows * kRowBytes];
  alignas(1024) std::byte staged[kParts][kWarps][kSwizzleColumns][kStoredRows * kRowBytes];
  RingBarriers<kSlots> ring;
  StationaryRows rows;  // here, because consumers have no registers to spare for it
  alignas(16) float weight_scales[kParts][StationaryParams::kBlocks];

  __device__ void init() { ring.init(1, kParts); }
};

}  // namespace quire::cuda::sm90::mla_prefill
