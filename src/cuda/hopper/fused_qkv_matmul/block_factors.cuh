// SPDX-License-Identifier: Apache-2.0
// Block scales as a thread applies them to the sums over a block of K.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/shared.cuh"

namespace quire::cuda::hopper {

// Where a thread's sums lie in the tile.
struct BlockPlace {
  int consumer;
  int row;           // of the first token; the second is 8 below
  int second_group;  // first group of 32 columns in the second block of 128 weight rows
};

// For a thread's two tokens.
struct BlockFactors {
  float first[2];   // columns in the tile's first block of 128 weight rows
  float second[2];  // in its second
};

// To be called before the products of the stage are started: one thread signals for all that a
// stage may be filled again, as soon as they have ended.
template <TileConfig kConfig>
__device__ BlockFactors block_factors(const TileShared<kConfig>& shared, int stage, int row) {
  const float first = shared.scales.block_weights[stage][0];
  const float second = shared.scales.block_weights[stage][1];
  const float low = shared.scales.block_tokens[stage][row];
  const float high = shared.scales.block_tokens[stage][row + 8];
  return {.first = {low * first, high * first}, .second = {low * second, high * second}};
}

// sums += the part's products, which have arrived, times their scales.
template <TileConfig kConfig, int kPart>
__device__ void add_part(float (&products)[kConfig.part_n() / 2], const BlockFactors& factors,
                         const BlockPlace& place, float (&sums)[kConfig.tile_n / 2]) {
  constexpr int kRegisters = kConfig.part_n() / 2;
  pin(products);
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) {
    const int index = kPart * kRegisters + i;
    const int half = i % 4 / 2;
    // A tile of 256 columns begins with a block of weight rows: no need to ask.
    const bool is_first = kConfig.tile_n == 256 ? kPart == 0 : index / 16 < place.second_group;
    sums[index] += (is_first ? factors.first[half] : factors.second[half]) * products[i];
  }
}

}  // namespace quire::cuda::hopper
