// SPDX-License-Identifier: Apache-2.0
// Shared memory of the weight-stationary projection.
#pragma once

#include "cuda/common/mma/wgmma.cuh"
#include "cuda/common/pipeline/ring.cuh"
#include "cuda/sm90/mla_prefill/stationary/rows.cuh"

namespace quire::cuda::sm90::mla_prefill {

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
