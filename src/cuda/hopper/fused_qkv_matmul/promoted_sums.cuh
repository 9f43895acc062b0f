// SPDX-License-Identifier: Apache-2.0
// fp8: sums of a tile, added up in fp32 outside the tensor core. While a warpgroup adds, another
// one or its own next products keep the tensor core busy. (Products in flight across the end of a
// loop whose registers are read in it make the compiler wait after each of them: C7514.)
#pragma once

#include "cuda/hopper/fused_qkv_matmul/stage_release.cuh"
#include "cuda/hopper/fused_qkv_matmul/tile_part.h"

namespace quire::cuda::hopper {

// Registers whose value nobody will read before a product writes them. Without this they are kept
// from tile to tile, and the stores between need the room.
template <int kRegisters> __device__ void forget(float (&products)[kRegisters]) {
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) asm volatile("" : "=f"(products[i]));
}

// Not a moment sooner: what has been stored until now had the same registers.
template <int kRegisters> __device__ void clear(float (&sums)[kRegisters]) {
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) asm volatile("mov.f32 %0, 0f00000000;" : "=f"(sums[i]));
}

// What a warpgroup multiplies in a stage.
template <TileConfig kConfig> struct StageOperands {
  TileShared<kConfig>& shared;
  int stage;
  std::uint64_t x;
  std::uint64_t weight;

  __device__ StageOperands(TileShared<kConfig>& shared, int consumer, int stage)
      : shared(shared),
        stage(stage),
        x(tile_descriptor(&shared.x[stage][consumer * kWgmmaRows * kRowBytes])),
        weight(tile_descriptor(shared.weight[stage])) {}
  // The products of the stage have ended.
  __device__ void release_stage() const { release<kConfig>(shared, stage); }
  // From half of the tile's columns on.
  __device__ std::uint64_t weight_part(int part) const {
    return weight + part * (kConfig.part_n() * kRowBytes >> 4);
  }
};

template <TileConfig kConfig>
__device__ void start_block(TileShared<kConfig>& shared, int consumer,
                            const RingPosition<kConfig.stages>& at, bool starts_sum,
                            float (&sums)[kConfig.tile_n / 2]) {
  shared.ring.wait_full(at);
  const StageOperands<kConfig> operands(shared, consumer, at.stage);
  pin(sums);
  cute::warpgroup_arrive();
  multiply_rows<Wgmma<kConfig.dtype, kConfig.tile_n>>(operands.x, operands.weight, sums,
                                                      starts_sum);
  cute::warpgroup_commit_batch();
}

// Blocks of K up to `end`, onto the one in stage `previous`, whose products are on their way. They have
// ended.
template <TileConfig kConfig>
__device__ void finish_chain(int end, TileShared<kConfig>& shared, int consumer, int previous,
                             RingPosition<kConfig.stages>& at, int& block,
                             float (&products)[kConfig.tile_n / 2]) {
  for (; block < end; ++block, at.advance()) {
    start_block<kConfig>(shared, consumer, at, false, products);
    cute::warpgroup_wait<1>();
    release<kConfig>(shared, previous);
    previous = at.stage;
  }
  cute::warpgroup_wait<0>();
  release<kConfig>(shared, previous);
  pin(products);
}

// Row scales: the tensor core sums chained_blocks blocks of K. The second warpgroup's second
// sum is of half as many, so that the two do not add at the same time. `meanwhile` stores the tile before
// under the first products, here and below: the new sums have no registers yet.
template <TileConfig kConfig, typename Meanwhile>
__device__ void sum_rows(int k_blocks, TileShared<kConfig>& shared, int consumer,
                         RingPosition<kConfig.stages>& at, float (&sums)[kConfig.tile_n / 2],
                         const Meanwhile& meanwhile) {
  float products[kConfig.tile_n / 2];
  forget(products);
  const auto start = [&] {
    start_block<kConfig>(shared, consumer, at, true, products);
    const int stage = at.stage;
    at.advance();
    return stage;
  };
  int previous = start();
  int block = 1;
  int end = kConfig.chained_blocks;
  const auto store_and_start = [&](auto part) {
    meanwhile(part);
    if (block == k_blocks) return;
    start_block<kConfig>(shared, consumer, at, false, products);
    cute::warpgroup_wait<1>();
    release<kConfig>(shared, previous);
    previous = at.stage;
    ++block;
    at.advance();
  };
  store_and_start(TilePart<0, 3>{});
  store_and_start(TilePart<1, 3>{});
  meanwhile(TilePart<2, 3>{});
  finish_chain<kConfig>(min(end, k_blocks), shared, consumer, previous, at, block, products);
#pragma unroll
  for (int i = 0; i < kConfig.tile_n / 2; ++i) sums[i] = products[i];
  if (consumer != 0) end -= kConfig.chained_blocks / 2;
  while (block < k_blocks) {
    end += kConfig.chained_blocks;
    previous = start();
    ++block;
    finish_chain<kConfig>(min(end, k_blocks), shared, consumer, previous, at, block, products);
#pragma unroll
    for (int i = 0; i < kConfig.tile_n / 2; ++i) sums[i] += products[i];
  }
}

}  // namespace quire::cuda::hopper
