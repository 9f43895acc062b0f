// SPDX-License-Identifier: Apache-2.0
// fp8: sums of a tile, added up in fp32 outside the tensor core. While a warpgroup adds, another
// one or its own next products keep the tensor core busy. (Products in flight across the end of a
// loop whose registers are read in it make the compiler wait after each of them: C7514.)
#pragma once

#include "cuda/hopper/fused_qkv_matmul/block_factors.cuh"
#include "cuda/hopper/fused_qkv_matmul/stage_release.cuh"
#include "cuda/hopper/tile/turns.cuh"

namespace quire::cuda::hopper {

// Products too, though their first value is never used: registers without one are kept from tile to
// tile, and the stores between them need the room.
template <int kRegisters> __device__ void clear(float (&sums)[kRegisters]) {
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) sums[i] = 0.0f;
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

// Row scales: the tensor core sums kChainedBlocks blocks of K. The second warpgroup begins with
// half as many, so that the two do not add at the same time.
template <TileConfig kConfig>
__device__ void sum_rows(int k_blocks, TileShared<kConfig>& shared, int consumer,
                         RingPosition<kConfig.stages>& at, float (&sums)[kConfig.tile_n / 2]) {
  float products[kConfig.tile_n / 2];
  clear(products);
  clear(sums);
  int end = TileConfig::kChainedBlocks / (consumer == 0 ? 1 : 2);
  for (int block = 0; block < k_blocks; end += TileConfig::kChainedBlocks) {
    int previous = -1;
    for (; block < min(end, k_blocks); ++block, at.advance()) {
      shared.ring.wait_full(at);
      const StageOperands<kConfig> operands(shared, consumer, at.stage);
      pin(products);
      cute::warpgroup_arrive();
      multiply_rows<Wgmma<kConfig.dtype, kConfig.tile_n>>(operands.x, operands.weight, products,
                                                          previous < 0);
      cute::warpgroup_commit_batch();
      if (previous >= 0) {
        cute::warpgroup_wait<1>();
        release<kConfig>(shared, previous);
      }
      previous = at.stage;
    }
    cute::warpgroup_wait<0>();
    release<kConfig>(shared, previous);
    pin(products);
#pragma unroll
    for (int i = 0; i < kConfig.tile_n / 2; ++i) sums[i] += products[i];
  }
}

// Block scales, two sets of registers: the second half of the columns is multiplied while the first
// is scaled and added.
template <TileConfig kConfig>
__device__ void sum_blocks(int k_blocks, TileShared<kConfig>& shared, const BlockPlace& place,
                           RingPosition<kConfig.stages>& at, float (&sums)[kConfig.tile_n / 2]) {
  using Op = Wgmma<kConfig.dtype, kConfig.part_n()>;
  float products[2][kConfig.part_n() / 2];
  clear(products[0]);
  clear(products[1]);
  clear(sums);
  for (int block = 0; block < k_blocks; ++block, at.advance()) {
    shared.ring.wait_full(at);
    const BlockFactors factors = block_factors<kConfig>(shared, at.stage, place.row);
    const StageOperands<kConfig> operands(shared, place.consumer, at.stage);
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      pin(products[part]);
      cute::warpgroup_arrive();
      multiply_rows<Op>(operands.x, operands.weight_part(part), products[part], true);
      cute::warpgroup_commit_batch();
    }
    cute::warpgroup_wait<1>();
    add_part<kConfig, 0>(products[0], factors, place, sums);
    cute::warpgroup_wait<0>();
    operands.release_stage();
    add_part<kConfig, 1>(products[1], factors, place, sums);
  }
}

// One part of a stage in the warpgroup's turn. The next one's begins while the last two of this
// one's four products run: signalled later, the tensor core stands still (one product later 1.5 %
// slower); earlier, the two warpgroups' products alternate, end together and leave it idle together.
template <TileConfig kConfig, int kPart>
__device__ void sum_part_in_turn(const StageOperands<kConfig>& operands,
                                 const BlockFactors& factors, const BlockPlace& place,
                                 const Turns<2>& turns, float (&products)[kConfig.part_n() / 2],
                                 float (&sums)[kConfig.tile_n / 2]) {
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
  cute::warpgroup_wait<0>();
  if constexpr (kPart == 1) operands.release_stage();
  add_part<kConfig, kPart>(products, factors, place, sums);
}

// Block scales, one set of registers.
template <TileConfig kConfig>
__device__ void sum_blocks_in_turns(int k_blocks, TileShared<kConfig>& shared,
                                    const BlockPlace& place, const Turns<2>& turns,
                                    RingPosition<kConfig.stages>& at,
                                    float (&sums)[kConfig.tile_n / 2]) {
  float products[kConfig.part_n() / 2];
  clear(products);
  clear(sums);
  for (int block = 0; block < k_blocks; ++block, at.advance()) {
    shared.ring.wait_full(at);
    const BlockFactors factors = block_factors<kConfig>(shared, at.stage, place.row);
    const StageOperands<kConfig> operands(shared, place.consumer, at.stage);
    sum_part_in_turn<kConfig, 0>(operands, factors, place, turns, products, sums);
    // It is full. But this is a branch, and without one the assembler moves the adds of the first
    // part behind the wait for the second part's turn.
    pin(sums);
    shared.ring.wait_full(at);
    sum_part_in_turn<kConfig, 1>(operands, factors, place, turns, products, sums);
  }
}

}  // namespace quire::cuda::hopper
