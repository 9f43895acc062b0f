// SPDX-License-Identifier: Apache-2.0
// fp8 with scales of blocks: the sums over every 128 of K are scaled and added up in fp32.
#pragma once

#include "cuda/common/matmul/block_factors.cuh"
#include "cuda/common/matmul/promoted_sums.cuh"

namespace quire::cuda {

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
