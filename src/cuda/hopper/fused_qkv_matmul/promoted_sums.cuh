// SPDX-License-Identifier: Apache-2.0
// fp8: sums of a tile, with every 128 of K scaled and added in fp32 outside the tensor core. The tile's
// columns are multiplied in parts that take turns with two sets of registers: while one part's
// products are added up, the next part's are on their way, so the tensor core does not wait.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/scales.cuh"
#include "cuda/hopper/fused_qkv_matmul/shared.cuh"
#include "cuda/hopper/fused_qkv_matmul/stage_release.cuh"

namespace quire::cuda::hopper {

struct BlockFactors {
  float tokens[2];
  float2 weight;

  __device__ static BlockFactors of(const Fp8Scales& tokens, const WeightBlockScales& weight,
                                    int block) {
    return {.tokens = {tokens.of_tokens(0, block), tokens.of_tokens(1, block)},
            .weight = weight.of_block(block)};
  }
};

template <TileConfig kConfig> struct PromotedSums {
  static constexpr int kParts = kConfig.tile_n / kConfig.part_n();
  static constexpr int kRegisters = kConfig.part_n() / 2;
  using Sums = float[kConfig.tile_n / 2];

  TileShared<kConfig>& shared;
  int consumer;
  int second_group;  // first group of 32 columns in the weight's second block of scales
  float parts[2][kRegisters];

  __device__ void start(int part, int stage) {
    float(&products)[kRegisters] = parts[part % 2];
    const std::byte* x = &shared.x[stage][consumer * kWgmmaRows * kRowBytes];
    const std::byte* weight = &shared.weight[stage][part * kConfig.part_n() * kRowBytes];
    pin(products);
    cute::warpgroup_arrive();
    multiply_rows<Wgmma<kConfig.dtype, kConfig.part_n()>>(tile_descriptor(x),
                                                          tile_descriptor(weight), products, true);
    cute::warpgroup_commit_batch();
  }

  // sums += the part's products, which have arrived.
  __device__ void finish(int part, const BlockFactors& factors, Sums& sums) {
    float(&products)[kRegisters] = parts[part % 2];
    pin(products);
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) {
      const int index = part * kRegisters + i;
      const float weight = index / 16 < second_group ? factors.weight.x : factors.weight.y;
      sums[index] += factors.tokens[i % 4 / 2] * weight * products[i];
    }
  }
};

// The last part of a stage is added up while only the other warpgroup multiplies: products in flight
// across the loop's end make the compiler wait after each of them.
template <TileConfig kConfig>
__device__ void sum_promoted(int k_blocks, TileShared<kConfig>& shared, int consumer,
                             const Fp8Scales& tokens, const WeightBlockScales& weight,
                             RingPosition<kConfig.stages>& at, float (&sums)[kConfig.tile_n / 2]) {
  constexpr int kParts = PromotedSums<kConfig>::kParts;
  PromotedSums<kConfig> promoted{
      .shared = shared, .consumer = consumer, .second_group = weight.second_group};
#pragma unroll
  for (int i = 0; i < kConfig.tile_n / 2; ++i) sums[i] = 0.0f;
  BlockFactors factors = BlockFactors::of(tokens, weight, 0);
  for (int block = 0; block < k_blocks; ++block, at.advance()) {
    const BlockFactors next = BlockFactors::of(tokens, weight, min(block + 1, k_blocks - 1));
    shared.ring.wait_full(at);
    promoted.start(0, at.stage);
#pragma unroll
    for (int part = 0; part + 1 < kParts; ++part) {
      promoted.start(part + 1, at.stage);
      cute::warpgroup_wait<1>();
      promoted.finish(part, factors, sums);
    }
    cute::warpgroup_wait<0>();
    release<kConfig>(shared, at.stage);
    promoted.finish(kParts - 1, factors, sums);
    factors = next;
  }
}

}  // namespace quire::cuda::hopper
