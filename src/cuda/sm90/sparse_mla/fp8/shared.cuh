// SPDX-License-Identifier: Apache-2.0
// Shared memory of a thread block. Queries and weights stand as the tensor cores read them (rows of 128
// bytes, 128-byte swizzle), rows of the cache as they came.
#pragma once

#include "cuda/common/pipeline/ring.cuh"
#include "cuda/sm90/sparse_mla/fp8/config.h"
#include "cuda/sm90/sparse_mla/shared.cuh"

namespace quire::cuda::sm90::sparse_mla {

struct Fp8ItemNote {
  ItemNote item;
  int first_tiles;  // of the first stream, of item.num_tiles
};

template <typename Variant> struct Fp8Shared {
  static constexpr Fp8Config kConfig = Variant::kConfig;
  static constexpr int kStages = kConfig.stages;
  static constexpr int kKeys = Fp8Config::kKeys;
  static constexpr int kHeads = kConfig.heads;

  // [swizzle column][head][64 columns]; when an item ends, half of a warpgroup's sums for the other one.
  alignas(1024) std::byte q[Fp8Config::kSwizzleColumns][kConfig.query_swizzle_column_bytes()];
  // [head][64 keys], of each warpgroup; tiles take the two in turn.
  alignas(1024) std::byte weights[2][2][kHeads * 2 * kKeys];
  alignas(16) std::byte rows[kStages][kKeys][Fp8Config::kRowStride];
  float row_scales[kStages][kKeys];                 // where they have a tensor of their own
  std::uint16_t masks[kStages][Fp8Config::kWarps];  // bit k: a warp's row k is a key
  alignas(16) std::uint16_t scales[2][2][Fp8Config::kGroups][kKeys];  // f16; as `weights`
  alignas(8) float query_factors[kHeads];
  float tops[2][Fp8Config::kWarps][kHeads];  // maxima, and at the end sums of weights
  alignas(8) float bases[2][kHeads];
  float factors[2][kHeads];  // of the finished sums
  Fp8ItemNote notes[2];
  int ends[2][2]
          [Fp8Config::kWarps];  // of each stream's tiles that a warp found in use; of two items
  RingBarriers<2> item_ring;
  EmptyBarrier attenders;
  FullBarrier rows_full[kStages];
  EmptyBarrier rows_empty[kStages][Fp8Config::kWarps];  // of each gathering warp's rows

  __device__ void init() {
    constexpr int kWarps = Fp8Config::kWarps;
    item_ring.init(1, 2 * kWarps);
    attenders.init(Fp8Config::kAttenders);
    // Each warp that gathers, and each of its lanes that found a row when the scale is there.
    for (int stage = 0; stage < kStages; ++stage) {
      rows_full[stage].init(kWarps + kKeys);
      for (EmptyBarrier& empty : rows_empty[stage]) empty.init(kWarps);
    }
  }
};

// Where both warpgroups that attend meet.
struct Attenders {
  EmptyBarrier& barrier;
  std::uint32_t phase = 0;

  __device__ void sync() {
    barrier.arrive();
    barrier.wait(phase);
    phase ^= 1;
  }
};

// Named barriers.
enum Fp8Barrier : std::uint32_t { kFp8Gatherers };

}  // namespace quire::cuda::sm90::sparse_mla
