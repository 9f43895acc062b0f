// SPDX-License-Identifier: Apache-2.0
// Block scales as a thread applies them to the sums over a block of K.
#pragma once

#include <numeric>

#include "cuda/common/matmul/shared.cuh"
#include "cuda/common/mma/row_order.h"

namespace quire::cuda {

// Where a thread's sums lie in the tile.
struct BlockPlace {
  int thread;  // of the warpgroup's 128
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
  const float2 weights = shared.scales.block_weights[stage];
  const float2 tokens = shared.scales.block_tokens[stage][pair_of_row(row)];
  return {.first = {tokens.x * weights.x, tokens.y * weights.x},
          .second = {tokens.x * weights.y, tokens.y * weights.y}};
}

enum class SumsAre : std::uint8_t { begun, added_to };

// sums (+)= the part's products, which have arrived, times their scales. All of one token, then all of the other:
// multiply-adds that follow each other with the same factor take it from the register cache. Each register that
// they read is one that the other warpgroup's products wait for: 0.9 – 1.4 % of 2048 and 8192 tokens.
template <TileConfig kConfig, SumsAre kSums, int kColumns = kConfig.tile_n, int kRegisters>
__device__ void add_part(int part, float (&products)[kRegisters], const BlockFactors& factors,
                         const BlockPlace& place, float (&sums)[kColumns / 2]) {
  pin(products);
#pragma unroll
  for (int n = 0; n < kRegisters; ++n) {
    const int half = n / (kRegisters / 2);
    const int i = n % (kRegisters / 2) / 2 * 4 + 2 * half + n % 2;
    const int index = part * kRegisters + i;
    // Tiles begin where their width allows: no need to ask about most groups.
    constexpr int kFirst = std::gcd(kColumns, 128) / kGroupRows;
    const int group = index / 16;
    const bool is_first = group < kFirst || (group < 4 && group < place.second_group);
    const float product = (is_first ? factors.first[half] : factors.second[half]) * products[i];
    sums[index] = kSums == SumsAre::begun ? product : sums[index] + product;
  }
}

}  // namespace quire::cuda
