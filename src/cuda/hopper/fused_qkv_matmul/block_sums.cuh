// SPDX-License-Identifier: Apache-2.0
// fp8 with scales of blocks: the sums over every 128 of K are scaled and added up in fp32.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/block_factors.cuh"
#include "cuda/hopper/fused_qkv_matmul/promoted_sums.cuh"
#include "cuda/hopper/tile/turns.cuh"

namespace quire::cuda::hopper {

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
        operands.x, operands.weight_part(step % kParts), products[step % 2], true);
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

// The first part's sums.
template <TileConfig kConfig> __device__ void pin_part(float (&sums)[kConfig.tile_n / 2]) {
#pragma unroll
  for (int i = 0; i < kConfig.part_n() / 2; ++i) cute::warpgroup_fence_operand(sums[i]);
}

// One part of a stage in the warpgroup's turn. The next one's begins while the last two of this
// one's four products run: signalled later, the tensor core stands still (one product later 1.5 %
// slower); earlier, the two warpgroups' products alternate, end together and leave it idle together.
template <TileConfig kConfig, SumsAre kSums, int kPart, typename Meanwhile>
__device__ void sum_part_in_turn(const StageOperands<kConfig>& operands,
                                 const BlockFactors& factors, const BlockPlace& place,
                                 const Turns<2>& turns, float (&products)[kConfig.part_n() / 2],
                                 float (&sums)[kConfig.tile_n / 2], const Meanwhile& meanwhile) {
  using Op = Wgmma<kConfig.dtype, kConfig.part_n()>;
  constexpr int kLead = 2;  // products that still run
  constexpr int kSteps = kRowBytes / kStepBytes - kLead;
  constexpr int kLast = kSteps * (kStepBytes >> 4);
  turns.wait();
  pin(products);
  cute::warpgroup_arrive();
  multiply_rows<Op, kSteps>(operands.x, operands.weight_part(kPart), products, true);
  cute::warpgroup_commit_batch();
  multiply_rows<Op, kLead>(operands.x + kLast, operands.weight_part(kPart) + kLast, products,
                           false);
  cute::warpgroup_commit_batch();
  cute::warpgroup_wait<1>();
  turns.pass_on();
  meanwhile(WholeTile{});
  cute::warpgroup_wait<0>();
  if constexpr (kPart == 1) operands.release_stage();
  add_part<kConfig, kSums>(kPart, products, factors, place, sums);
}

template <TileConfig kConfig, SumsAre kSums, typename Meanwhile>
__device__ void sum_block_in_turns(TileShared<kConfig>& shared, const BlockPlace& place,
                                   const Turns<2>& turns, RingPosition<kConfig.stages>& at,
                                   float (&products)[kConfig.part_n() / 2],
                                   float (&sums)[kConfig.tile_n / 2], const Meanwhile& meanwhile) {
  shared.ring.wait_full(at);
  const BlockFactors factors = block_factors<kConfig>(shared, at.stage, place.row);
  const StageOperands<kConfig> operands(shared, place.consumer, at.stage);
  sum_part_in_turn<kConfig, kSums, 0>(operands, factors, place, turns, products, sums, meanwhile);
  // It is full. But this is a branch, and without one the assembler moves the adds of the first
  // part behind the wait for the second part's turn.
  pin_part<kConfig>(sums);
  shared.ring.wait_full(at);
  sum_part_in_turn<kConfig, kSums, 1>(operands, factors, place, turns, products, sums, [](auto) {});
  at.advance();
}

// Block scales, one set of registers.
template <TileConfig kConfig, typename Meanwhile>
__device__ void sum_blocks_in_turns(int k_blocks, TileShared<kConfig>& shared,
                                    const BlockPlace& place, const Turns<2>& turns,
                                    RingPosition<kConfig.stages>& at,
                                    float (&sums)[kConfig.tile_n / 2], const Meanwhile& meanwhile) {
  float products[kConfig.part_n() / 2];
  forget(products);
  sum_block_in_turns<kConfig, SumsAre::begun>(shared, place, turns, at, products, sums, meanwhile);
  for (int block = 1; block < k_blocks; ++block) {
    sum_block_in_turns<kConfig, SumsAre::added_to>(shared, place, turns, at, products, sums,
                                                   [](auto) {});
  }
}

}  // namespace quire::cuda::hopper
