// SPDX-License-Identifier: Apache-2.0
// fp8: sums of a tile, added up in fp32 outside the tensor core. While a warpgroup adds, another
// one or its own next products keep the tensor core busy. (Products in flight across the end of a
// loop whose registers are read in it make the compiler wait after each of them: C7514.)
#pragma once

#include <utility>

#include "cuda/common/matmul/stage_release.cuh"
#include "cuda/common/matmul/tile_part.h"
#include "cuda/common/mma/wgmma_tf32_shapes.cuh"

namespace quire::cuda {

// Registers whose value nobody will read before a product writes them. Without this they are kept
// from tile to tile, and the stores between need the room.
template <int kRegisters> __device__ void forget(float (&products)[kRegisters]) {
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) asm volatile("" : "=f"(products[i]));
}

// What a narrow tile has of a whole one's registers.
template <int kCount, int kRegisters>
__device__ auto first_of(float (&registers)[kRegisters]) -> float (&)[kCount] {
  static_assert(kCount <= kRegisters);
  return reinterpret_cast<float(&)[kCount]>(registers);
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
  __device__ void release_stage(int thread) const { release<kConfig>(shared, stage, thread); }
  // From this column on.
  __device__ std::uint64_t weight_from(int column) const {
    return weight + (column * kRowBytes >> 4);
  }
};

// Products of one block of K after another, onto the same sums. One batch stays in flight: the stage before it
// is released.
template <TileConfig kConfig, int kColumns = kConfig.tile_n> struct BlockChain {
  TileShared<kConfig>& shared;
  int consumer;
  RingPosition<kConfig.stages>& at;
  float (&sums)[kColumns / 2];
  int previous = 0;      // stage of the block before, whose products are on their way
  bool is_full = false;  // the stage at `at`, when it was last looked at

  // The next stage is looked at before the products are started: the answer is there when they are. (Small
  // tiles wait for memory, not for barriers.)
  __device__ __forceinline__ void start(bool starts_sum) {
    if (!is_full) shared.ring.wait_full(at);
    const StageOperands<kConfig> operands(shared, consumer, at.stage);
    at.advance();
    if constexpr (kConfig.moves_registers()) {
      is_full = shared.ring.full[at.stage].test_wait(at.phase);
    }
    pin(sums);
    cute::warpgroup_arrive();
    multiply_rows<Wgmma<kConfig.dtype, kColumns>>(operands.x, operands.weight, sums, starts_sum);
    cute::warpgroup_commit_batch();
    if (!starts_sum) {
      cute::warpgroup_wait<1>();
      release<kConfig>(shared, previous);
    }
    previous = operands.stage;
  }
  __device__ __forceinline__ void finish() {
    cute::warpgroup_wait<0>();
    release<kConfig>(shared, previous);
    pin(sums);
  }
};

// Starts the first block of K and another between each two parts of the tile before, which `meanwhile` stores:
// under one block alone the stores would outlast the products. Returns the number of blocks started.
template <typename Chain, typename Meanwhile, int... kPart>
__device__ __forceinline__ int start_and_store(int k_blocks, Chain& chain,
                                               const Meanwhile& meanwhile,
                                               std::integer_sequence<int, kPart...>) {
  chain.start(true);
  int blocks = 1;
  const auto store = [&](auto part) {
    meanwhile(part);
    if (decltype(part)::kIsLast || blocks == k_blocks) return;
    chain.start(false);
    ++blocks;
  };
  (store(TilePart<kPart, sizeof...(kPart)>{}), ...);
  return blocks;
}

// Row scales: the tensor core sums chained_blocks blocks of K. `meanwhile` stores the tile before under the
// first products, here and below: the new sums have no registers yet. `near_the_end` is called under the last.
// The second warpgroup's second sum is of half as many blocks, so that the two do not add at the same time.
// kColumns: tile_n or half of it.
template <TileConfig kConfig, int kColumns = kConfig.tile_n, typename Meanwhile,
          typename NearTheEnd>
__device__ void sum_rows(int k_blocks, TileShared<kConfig>& shared, int consumer,
                         RingPosition<kConfig.stages>& at, float (&sums)[kColumns / 2],
                         const Meanwhile& meanwhile, const NearTheEnd& near_the_end) {
  constexpr int kChain = kConfig.chained_blocks;
  float products[kColumns / 2];
  forget(products);
  BlockChain<kConfig, kColumns> chain{shared, consumer, at, products};
  int block = start_and_store(k_blocks, chain, meanwhile, std::make_integer_sequence<int, 3>{});
#pragma unroll 1
  for (; block < min(kChain, k_blocks); ++block) chain.start(false);
  if (block == k_blocks) near_the_end();
  chain.finish();
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) sums[i] = products[i];
  int next = consumer == 0 ? kChain : kChain / 2;
#pragma unroll 1
  while (block < k_blocks) {
    const int blocks = min(next, k_blocks - block);
    next = kChain;
    block += blocks;
    chain.start(true);
    if (blocks == kChain) {
#pragma unroll
      for (int i = 1; i < kChain; ++i) chain.start(false);
    } else {
#pragma unroll 1
      for (int i = 1; i < blocks; ++i) chain.start(false);
    }
    if (block == k_blocks) near_the_end();
    chain.finish();
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) sums[i] += products[i];
  }
}

}  // namespace quire::cuda
