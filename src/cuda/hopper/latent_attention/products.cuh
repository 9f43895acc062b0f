// SPDX-License-Identifier: Apache-2.0
// The two products of a warpgroup's 64 rows with a tile of keys. Asynchronous: between a fence and a
// commit.
#pragma once

#include "cuda/hopper/latent_attention/shared.cuh"

namespace quire::cuda::hopper {

inline constexpr int kTileScores = LatentConfig::kKeys / 2;   // of a thread
inline constexpr int kTileSums = LatentConfig::kColumns / 2;  // of a thread
inline constexpr int kTileWords = LatentConfig::kKeys / 4;    // of a thread's weights

// The address field of a descriptor. Addresses in a cluster carry the block's rank above the 18 bits
// that are the instruction's; there they would change the field beside it.
__device__ inline std::uint32_t address_field(const void* tile) {
  return (static_cast<std::uint32_t>(__cvta_generic_to_shared(tile)) & 0x3ffff) >> 4;
}

// The halves of descriptors (tile/wgmma.cuh): where a tile stands, and how its rows lie. Steps along a
// tile change the first and never carry into the second; kept apart they are one addition each, in
// uniform registers where `low` was broadcast.
inline constexpr std::uint32_t kRowsHigh = 1U << 30 | 1024 >> 4;  // 128-byte rows, swizzle b128
inline constexpr std::uint32_t kTailHigh = 2U << 30 | 512 >> 4;   // 64-byte rows, swizzle b64

__device__ inline std::uint32_t descriptor_low(const void* tile) {
  return address_field(tile) | 1U << 16;
}
__device__ inline std::uint64_t descriptor(std::uint32_t low, std::uint32_t high) {
  return std::uint64_t{high} << 32 | low;
}
__device__ inline std::uint32_t broadcast(std::uint32_t value) {
  return __shfl_sync(0xffffffff, value, 0);
}

// scores = q · Kᵀ over this block's columns. `group`: the warpgroup's rows of q.
template <LatentConfig kConfig>
__device__ inline void issue_scores(const LatentShared<kConfig>& shared, int group, int stage,
                                    float (&scores)[kTileScores]) {
  using Op = Wgmma<kConfig.dtype, LatentConfig::kKeys>;
  using Shared = LatentShared<kConfig>;
  constexpr auto kIndex = std::make_index_sequence<kTileScores>{};
  constexpr int kSlabSteps = kRowBytes / kStepBytes;
  // Broadcast here and not where they are known: else the compiler keeps every step's descriptor in
  // registers of its own.
  const std::uint32_t a =
      broadcast(descriptor_low(&shared.q[0][group * LatentConfig::kGroupRows * kRowBytes]));
  const std::uint32_t b = broadcast(descriptor_low(&shared.stages[stage]));
#pragma unroll
  for (int step = 0; step < LatentConfig::kSlabs * kSlabSteps; ++step) {
    const int slab = step / kSlabSteps;
    const int bytes = step % kSlabSteps * kStepBytes;
    detail::issue<Op>(
        descriptor(a + (slab * Shared::kQuerySlabBytes + bytes >> 4), kRowsHigh),
        descriptor(b + (slab * LatentStage::kSlabBytes + bytes >> 4), kRowsHigh), scores,
        step == 0 ? cute::SM90::GMMA::ScaleOut::Zero : cute::SM90::GMMA::ScaleOut::One, kIndex);
  }
  const std::uint32_t a_tail = broadcast(
      descriptor_low(&shared.q_tail[group * LatentConfig::kGroupRows * LatentConfig::kTailBytes]));
#pragma unroll
  for (int bytes = 0; bytes < LatentConfig::kTailBytes; bytes += kStepBytes) {
    detail::issue<Op>(
        descriptor(a_tail + (bytes >> 4), kTailHigh),
        descriptor(b + (LatentConfig::kSlabs * LatentStage::kSlabBytes + bytes >> 4), kTailHigh),
        scores, cute::SM90::GMMA::ScaleOut::One, kIndex);
  }
}

// sums += weights · V.
template <LatentConfig kConfig>
__device__ inline void issue_values(const LatentShared<kConfig>& shared, int stage,
                                    const std::uint32_t (&weights)[kTileWords],
                                    float (&sums)[kTileSums]) {
  using Op = RegisterWgmma<kConfig.dtype, LatentConfig::kColumns>;
  constexpr int kStepRows = 16;
  const std::uint32_t b = broadcast(address_field(&shared.stages[stage]) |
                                    static_cast<std::uint32_t>(LatentStage::kSlabBytes >> 4) << 16);
#pragma unroll
  for (int step = 0; step < kTileWords / 4; ++step) {
    detail::issue<Op>(&weights[4 * step],
                      descriptor(b + (step * kStepRows * kRowBytes >> 4), kRowsHigh), sums,
                      cute::SM90::GMMA::ScaleOut::One, std::make_index_sequence<kTileSums>{});
  }
}

}  // namespace quire::cuda::hopper
