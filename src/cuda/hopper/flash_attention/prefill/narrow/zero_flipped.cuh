// SPDX-License-Identifier: Apache-2.0
// As zero_values(), for transposed V: keys are bytes of a row.
#pragma once

#include "cuda/hopper/flash_attention/prefill/narrow/flip_values.h"
#include "cuda/hopper/flash_attention/prefill/shared.cuh"

namespace quire::cuda::hopper {

// Of a tile's first V block, which may be the last of its keys: the first key behind them.
template <PrefillConfig kConfig> __device__ inline int zeros_of(const PrefillTile& tile) {
  return tile.end_key - tile.first_key - (tile.end_block - 1) * kConfig.block_keys;
}

// By a warpgroup, a column of V each thread: keys first … of a block. Every consumer writes the zeros
// for itself; the others write the same.
__device__ inline void zero_flipped(std::byte* block, int first) {
  static_assert(kFlippedColumns == 128 && kFlippedKeys == kRowBytes);
  const auto column = static_cast<int>(threadIdx.x % 128);
#pragma unroll 1
  for (int group = first / 16; group < kFlippedKeys / 16; ++group) {
    auto* words =
        reinterpret_cast<std::uint32_t*>(block + column * kRowBytes + (group ^ (column % 8)) * 16);
#pragma unroll 1
    for (int place = 0; place < 16; place += 4) {
      std::uint32_t kept = 0;
      for (int k = 0; k < 4; ++k) {
        if (16 * group + key_at_place(place + k) < first) kept |= 0xffU << (8 * k);
      }
      words[place / 4] &= kept;
    }
  }
}

}  // namespace quire::cuda::hopper
