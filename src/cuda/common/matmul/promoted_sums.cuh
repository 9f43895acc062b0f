// SPDX-License-Identifier: Apache-2.0
// fp8: sums of a tile, added up in fp32 outside the tensor core. While a warpgroup adds, another
// one or its own next products keep the tensor core busy. (Products in flight across the end of a
// loop whose registers are read in it make the compiler wait after each of them: C7514.)
#pragma once

#include <utility>

#include "cuda/common/matmul/config.h"
#include "cuda/common/matmul/finish.cuh"
#include "cuda/common/matmul/shared.cuh"
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

// fp8 with scales of blocks: the sums over every 128 of K are scaled and added up in fp32.

// Block scales, two sets of registers: while the products of one run, the other's are scaled and
// added, over kBlocks blocks of K without a gap. `meanwhile` is called when both are on their way.
template <TileConfig kConfig, int kBlocks> struct BlockRun {
  static constexpr int kParts = kConfig.parts();
  static constexpr int kSteps = kBlocks * kParts;

  TileShared<kConfig>& shared;
  const BlockPlace& place;
  RingPosition<kConfig.stages>& at;
  float (&products)[2][kConfig.part_n() / 2];
  float (&sums)[kConfig.tile_n / 2];
  BlockFactors factors[2] = {};  // of even blocks, of odd ones
  int stages[2] = {};

  __device__ void start(int step) {
    const int block = step / kParts;
    if (step % kParts == 0) {
      shared.ring.wait_full(at);
      factors[block % 2] = block_factors<kConfig>(shared, at.stage, place.row);
      stages[block % 2] = at.stage;
      at.advance();
    }
    const StageOperands<kConfig> operands(shared, place.consumer, stages[block % 2]);
    pin(products[step % 2]);
    cute::warpgroup_arrive();
    multiply_rows<Wgmma<kConfig.dtype, kConfig.part_n()>>(
        operands.x, operands.weight_from(step % kParts * kConfig.part_n()), products[step % 2],
        true);
    cute::warpgroup_commit_batch();
  }

  __device__ void add(int step) {
    const int block = step / kParts;
    if (step + 1 < kSteps) {
      cute::warpgroup_wait<1>();
    } else {
      cute::warpgroup_wait<0>();
    }
    if (step % kParts == kParts - 1) release<kConfig>(shared, stages[block % 2]);
    add_part<kConfig, SumsAre::added_to>(step % kParts, products[step % 2], factors[block % 2],
                                         place, sums);
  }

  template <typename Meanwhile> __device__ void run(const Meanwhile& meanwhile) {
    start(0);
    if constexpr (kSteps > 1) start(1);
    meanwhile();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      add(step);
      if (step + 2 < kSteps) start(step + 2);
    }
  }
};

// Whole runs of unrolled_blocks(), then one by one: at the end of a loop no product may be on its way.
template <TileConfig kConfig, typename Meanwhile>
__device__ void sum_blocks(int k_blocks, TileShared<kConfig>& shared, const BlockPlace& place,
                           RingPosition<kConfig.stages>& at, float (&sums)[kConfig.tile_n / 2],
                           const Meanwhile& meanwhile) {
  constexpr int kUnrolled = kConfig.unrolled_blocks();
  float products[2][kConfig.part_n() / 2];
  forget(products[0]);
  forget(products[1]);
  int block = 0;
  const auto at_first = [&] {
    if (block > 0) return;
    meanwhile(WholeTile{});
    clear(sums);
  };
  for (; block + kUnrolled <= k_blocks; block += kUnrolled) {
    BlockRun<kConfig, kUnrolled>{shared, place, at, products, sums}.run(at_first);
  }
  for (; block < k_blocks; ++block) {
    BlockRun<kConfig, 1>{shared, place, at, products, sums}.run(at_first);
  }
}

// Block scales, one set of registers: a part's products, then its adds. While one warpgroup adds, the
// other's products run; they need no turns, which cost a twentieth of 2048 tokens. What counts is the
// time from the last add to the next product: the scales of the next block are in registers by then.
template <TileConfig kConfig, int kColumns> struct BlockByParts {
  static constexpr int kParts = kConfig.parts();
  static constexpr int kPartColumns = kColumns / kParts;

  TileShared<kConfig>& shared;
  const BlockPlace& place;
  RingPosition<kConfig.stages>& at;
  float (&products)[kPartColumns / 2];
  float (&sums)[kColumns / 2];

  __device__ BlockFactors wait_for_factors(const RingPosition<kConfig.stages>& of) {
    shared.ring.wait_full(of);
    return block_factors<kConfig>(shared, of.stage, place.row);
  }

  // `factors` become those of the next block, if there is one. `meanwhile` is given the parts of the
  // tile: a part's sums begin after it.
  template <SumsAre kSums, int kPart, typename Meanwhile>
  __device__ void sum_part(BlockFactors& factors, bool has_next, const Meanwhile& meanwhile) {
    const StageOperands<kConfig> operands(shared, place.consumer, at.stage);
    pin(products);
    cute::warpgroup_arrive();
    multiply_rows<Wgmma<kConfig.dtype, kPartColumns>>(
        operands.x, operands.weight_from(kPart * kPartColumns), products, true);
    cute::warpgroup_commit_batch();
    meanwhile(TilePart<kPart, kParts>{});
    const BlockFactors now = factors;
    if constexpr (kPart == kParts - 1) {
      at.advance();
      if (has_next) factors = wait_for_factors(at);
    }
    cute::warpgroup_wait<0>();
    if constexpr (kPart == kParts - 1) operands.release_stage(place.thread);
    add_part<kConfig, kSums, kColumns>(kPart, products, now, place, sums);
    if constexpr (kPart < kParts - 1) {
      sum_part<kSums, kPart + 1>(factors, has_next, meanwhile);
    }
  }
};

template <TileConfig kConfig, int kColumns = kConfig.tile_n, typename Meanwhile>
__device__ void sum_blocks_by_parts(int k_blocks, TileShared<kConfig>& shared,
                                    const BlockPlace& place, RingPosition<kConfig.stages>& at,
                                    float (&sums)[kColumns / 2], const Meanwhile& meanwhile) {
  float products[kColumns / kConfig.parts() / 2];
  forget(products);
  BlockByParts<kConfig, kColumns> blocks{shared, place, at, products, sums};
  BlockFactors factors = blocks.wait_for_factors(at);
  blocks.template sum_part<SumsAre::begun, 0>(factors, k_blocks > 1, meanwhile);
  for (int block = 1; block < k_blocks; ++block) {
    blocks.template sum_part<SumsAre::added_to, 0>(factors, block + 1 < k_blocks, [](auto) {});
  }
}

}  // namespace quire::cuda
