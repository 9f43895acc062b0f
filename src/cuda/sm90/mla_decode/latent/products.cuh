// SPDX-License-Identifier: Apache-2.0
// Descriptors of what products of latent rows read.
#pragma once

#include "cuda/sm90/mla_decode/latent/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

inline constexpr int kTileScores = LatentConfig::kKeys / 2;  // of a thread

// The address field of a descriptor. Addresses in a cluster carry the block's rank above the 18 bits
// that are the instruction's; there they would change the field beside it.
__device__ inline std::uint32_t address_field(const void* tile) {
  return (static_cast<std::uint32_t>(__cvta_generic_to_shared(tile)) & 0x3ffff) >> 4;
}

// The halves of descriptors (common/mma/wgmma.cuh): where a tile stands, and how its rows lie. Steps along a
// tile change the first and never carry into the second; kept apart they are one addition each, in
// uniform registers where `low` was broadcast.
inline constexpr std::uint32_t kRowsHigh = 1U << 30 | 1024 >> 4;  // 128-byte rows, swizzle b128

__device__ inline std::uint32_t descriptor_low(const void* tile) {
  return address_field(tile) | 1U << 16;
}
__device__ inline std::uint64_t descriptor(std::uint32_t low, std::uint32_t high) {
  return std::uint64_t{high} << 32 | low;
}
__device__ inline std::uint32_t broadcast(std::uint32_t value) {
  return __shfl_sync(0xffffffff, value, 0);
}

}  // namespace quire::cuda::sm90::mla_decode
