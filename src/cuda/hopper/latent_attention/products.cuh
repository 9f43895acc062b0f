// SPDX-License-Identifier: Apache-2.0
// The two products of a warpgroup's 64 rows with a tile of keys. Asynchronous: between a fence and a
// commit.
#pragma once

#include "cuda/hopper/latent_attention/shared.cuh"

namespace quire::cuda::hopper {

inline constexpr int kTileScores = LatentConfig::kKeys / 2;   // of a thread
inline constexpr int kTileSums = LatentConfig::kColumns / 2;  // of a thread
inline constexpr int kTileWords = LatentConfig::kKeys / 4;    // of a thread's weights

// Of a tile of 64-byte rows, swizzle b64, 512 bytes between atoms.
__device__ inline std::uint64_t tail_descriptor(const void* tile) {
  return address_field(tile) | (std::uint64_t{1} << 16) | (std::uint64_t{512 >> 4} << 32) |
         (std::uint64_t{2} << 62);
}

// scores = q · Kᵀ over this block's columns. `group`: the warpgroup's rows of q.
template <LatentConfig kConfig>
__device__ inline void issue_scores(const LatentShared<kConfig>& shared, int group, int stage,
                                    float (&scores)[kTileScores]) {
  using Op = Wgmma<kConfig.dtype, LatentConfig::kKeys>;
  const LatentStage& keys = shared.stages[stage];
  const std::uint64_t a =
      tile_descriptor(&shared.q[0][group * LatentConfig::kGroupRows * kRowBytes]);
  const std::uint64_t b = tile_descriptor(keys.slabs[0]);
#pragma unroll
  for (int slab = 0; slab < LatentConfig::kSlabs; ++slab) {
    multiply_rows<Op>(a + slab * (shared.kQuerySlabBytes >> 4),
                      b + slab * (LatentStage::kSlabBytes >> 4), scores, slab == 0);
  }
  multiply_rows<Op, LatentConfig::kTailBytes / kStepBytes>(
      tail_descriptor(&shared.q_tail[group * LatentConfig::kGroupRows * LatentConfig::kTailBytes]),
      tail_descriptor(keys.tail), scores, false);
}

// sums += weights · V.
template <LatentConfig kConfig>
__device__ inline void issue_values(const LatentShared<kConfig>& shared, int stage,
                                    const std::uint32_t (&weights)[kTileWords],
                                    float (&sums)[kTileSums]) {
  using Op = RegisterWgmma<kConfig.dtype, LatentConfig::kColumns>;
  multiply_registers<Op>(
      weights, transposed_descriptor(shared.stages[stage].slabs[0], LatentStage::kSlabBytes), sums,
      false);
}

}  // namespace quire::cuda::hopper
