// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cutlass/arch/barrier.h>

#include "cuda/hopper/fused_qkv_matmul/scales.cuh"
#include "cuda/hopper/fused_qkv_matmul/shared.cuh"
#include "cuda/hopper/fused_qkv_matmul/stage_release.cuh"

namespace quire::cuda::hopper {

// What the sums over a block of K are multiplied by, for a thread's two tokens.
struct BlockFactors {
  float first[2];   // columns of the weight's first block of scales
  float second[2];  // of its second
};

template <TileConfig kConfig>
__device__ BlockFactors block_factors(const TileShared<kConfig>& shared, int stage, int row) {
  if constexpr (kConfig.scaling != Scaling::blocks) {
    return {};
  } else {
    const float2 weight = shared.scales.block_weights[stage];
    const float low = shared.scales.block_tokens[stage][row];
    const float high = shared.scales.block_tokens[stage][row + 8];
    return {.first = {low * weight.x, high * weight.x}, .second = {low * weight.y, high * weight.y}};
  }
}

template <TileConfig kConfig> struct PromotedSums {
  static constexpr int kParts = kConfig.parts();
  static constexpr int kRegisters = kConfig.part_n / 2;
  using Sums = float[kConfig.tile_n / 2];

  TileShared<kConfig>& shared;
  int consumer;
  int second_group;  // first group of 32 columns in the weight's second block of scales
  float parts[kConfig.part_sets][kRegisters];

  __device__ void start(int part, int stage, bool starts_sum = true) {
    float(&products)[kRegisters] = parts[part % kConfig.part_sets];
    const std::byte* x = &shared.x[stage][consumer * kWgmmaRows * kRowBytes];
    const std::byte* weight = &shared.weight[stage][part * kConfig.part_n * kRowBytes];
    pin(products);
    cute::warpgroup_arrive();
    if constexpr (kConfig.order >= 2) {
      using Op = Wgmma<kConfig.dtype, kConfig.part_n>;
      const std::uint64_t a = tile_descriptor(x), b = tile_descriptor(weight);
      constexpr auto kIndex = std::make_index_sequence<kRegisters>{};
      detail::issue<Op>(a, b, products, cute::SM90::GMMA::ScaleOut::Zero, kIndex);
      detail::issue<Op>(a + 2, b + 2, products, cute::SM90::GMMA::ScaleOut::One, kIndex);
      if constexpr (kConfig.order == 3) cute::warpgroup_commit_batch();
      detail::issue<Op>(a + 4, b + 4, products, cute::SM90::GMMA::ScaleOut::One, kIndex);
      if constexpr (kConfig.order == 2) cute::warpgroup_commit_batch();
      detail::issue<Op>(a + 6, b + 6, products, cute::SM90::GMMA::ScaleOut::One, kIndex);
      cute::warpgroup_commit_batch();
    } else {
      multiply_rows<Wgmma<kConfig.dtype, kConfig.part_n>>(
          tile_descriptor(x), tile_descriptor(weight), products, starts_sum);
      cute::warpgroup_commit_batch();
    }
  }

  __device__ void start_set(int set, int stage) {
    const std::byte* x = &shared.x[stage][consumer * kWgmmaRows * kRowBytes];
    pin(parts[set]);
    cute::warpgroup_arrive();
    multiply_rows<Wgmma<kConfig.dtype, kConfig.part_n>>(
        tile_descriptor(x), tile_descriptor(shared.weight[stage]), parts[set], true);
    cute::warpgroup_commit_batch();
  }
  __device__ void finish_set(int set, const BlockFactors& factors, Sums& sums) {
    pin(parts[set]);
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) {
      const int half = i % 4 / 2;
      const bool is_first = i / 16 < second_group;
      sums[i] += (is_first ? factors.first[half] : factors.second[half]) * parts[set][i];
    }
  }

  // sums += the part's products, which have arrived.
  __device__ void finish(int part, const BlockFactors& factors, Sums& sums) {
    float(&products)[kRegisters] = parts[part % kConfig.part_sets];
    pin(products);
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) {
      const int index = part * kRegisters + i;
      if constexpr (kConfig.scaling == Scaling::rows) {
        sums[index] += products[i];
      } else {
        const int half = i % 4 / 2;
        const bool is_first = kConfig.tile_n == 256 ? index < 64 : index / 16 < second_group;
        sums[index] += (is_first ? factors.first[half] : factors.second[half]) * products[i];
      }
    }
    if constexpr (kConfig.order >= 2) {
#pragma unroll
      for (int i = 0; i < kRegisters; ++i) {
        cute::warpgroup_fence_operand(sums[part * kRegisters + i]);
      }
    }
  }
};

// Two sets of part registers: while a part's sums are added up, the next part's products are on their
// way, into the next block of K too.
template <TileConfig kConfig>
__device__ void sum_turns(int k_blocks, TileShared<kConfig>& shared, int consumer, int row,
                          int second_group, RingPosition<kConfig.stages>& at,
                          float (&sums)[kConfig.tile_n / 2]) {
  constexpr int kParts = PromotedSums<kConfig>::kParts;
  constexpr int kChained = kConfig.chained;
  static_assert(kParts % 2 == 0 && (kChained == 1 || kParts == 2));
  PromotedSums<kConfig> promoted{
      .shared = shared, .consumer = consumer, .second_group = second_group};
#pragma unroll
  for (int i = 0; i < kConfig.tile_n / 2; ++i) sums[i] = 0.0f;
  const auto ends_chain = [&](int part, int block) {
    return (block + 1 + part * (kChained / 2) + consumer * (kChained / 4)) % kChained == 0;
  };
  shared.ring.wait_full(at);
  BlockFactors factors = block_factors<kConfig>(shared, at.stage, row);
  promoted.start(0, at.stage, true);
  for (int block = 0; block + 1 < k_blocks; ++block) {
#pragma unroll
    for (int part = 0; part + 1 < kParts; ++part) {
      promoted.start(part + 1, at.stage, block == 0 || ends_chain(part + 1, block - 1));
      cute::warpgroup_wait<1>();
      if (ends_chain(part, block)) promoted.finish(part, factors, sums);
    }
    const int stage = at.stage;
    at.advance();
    shared.ring.wait_full(at);
    promoted.start(0, at.stage, ends_chain(0, block));
    cute::warpgroup_wait<1>();
    release<kConfig>(shared, stage);
    if (ends_chain(kParts - 1, block)) promoted.finish(kParts - 1, factors, sums);
    factors = block_factors<kConfig>(shared, at.stage, row);
  }
#pragma unroll
  for (int part = 0; part + 1 < kParts; ++part) {
    promoted.start(part + 1, at.stage, k_blocks == 1 || ends_chain(part + 1, k_blocks - 2));
    cute::warpgroup_wait<1>();
    promoted.finish(part, factors, sums);
  }
  cute::warpgroup_wait<0>();
  release<kConfig>(shared, at.stage);
  promoted.finish(kParts - 1, factors, sums);
  at.advance();
}

// One set; parts one after another; the other warpgroup multiplies meanwhile.
template <TileConfig kConfig>
__device__ void sum_parts(int k_blocks, TileShared<kConfig>& shared, int consumer,
                          int row, int second_group,
                          RingPosition<kConfig.stages>& at, float (&sums)[kConfig.tile_n / 2]) {
  constexpr int kParts = PromotedSums<kConfig>::kParts;
  PromotedSums<kConfig> promoted{
      .shared = shared, .consumer = consumer, .second_group = second_group};
#pragma unroll
  for (int i = 0; i < kConfig.tile_n / 2; ++i) sums[i] = 0.0f;
  for (int block = 0; block < k_blocks; ++block, at.advance()) {
    shared.ring.wait_full(at);
    const BlockFactors factors = block_factors<kConfig>(shared, at.stage, row);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      if constexpr (kConfig.order > 0) cutlass::arch::NamedBarrier::sync(256, 2 + consumer);
      promoted.start(part, at.stage);
      if constexpr (kConfig.order >= 2) cute::warpgroup_wait<1>();
      if constexpr (kConfig.order > 0) cutlass::arch::NamedBarrier::arrive(256, 3 - consumer);
      cute::warpgroup_wait<0>();
      if (part == kParts - 1) release<kConfig>(shared, at.stage);
      promoted.finish(part, factors, sums);
    }
  }
}

// The whole width at once, `chained` blocks of K in the tensor core.
template <TileConfig kConfig>
__device__ void sum_chained(int k_blocks, TileShared<kConfig>& shared, int consumer,
                            int row, int second_group,
                            RingPosition<kConfig.stages>& at, float (&sums)[kConfig.tile_n / 2]) {
  PromotedSums<kConfig> promoted{
      .shared = shared, .consumer = consumer, .second_group = second_group};
#pragma unroll
  for (int i = 0; i < kConfig.tile_n / 2; ++i) sums[i] = 0.0f;
  int end = consumer == 0 || kConfig.order == 0 ? kConfig.chained : kConfig.chained / 2;
  for (int block = 0; block < k_blocks; end += kConfig.chained) {
    int previous = -1;
    BlockFactors factors{};
    for (; block < min(end, k_blocks); ++block, at.advance()) {
      shared.ring.wait_full(at);
      factors = block_factors<kConfig>(shared, at.stage, row);
      promoted.start(0, at.stage, previous < 0);
      if (previous >= 0) {
        cute::warpgroup_wait<1>();
        release<kConfig>(shared, previous);
      }
      previous = at.stage;
    }
    cute::warpgroup_wait<0>();
    release<kConfig>(shared, previous);
    promoted.finish(0, factors, sums);
  }
}

// Few tokens: part_sets blocks of K at a time, each into registers of its own.
template <TileConfig kConfig, int kAt = 0>
__device__ void finish_group(PromotedSums<kConfig>& promoted, TileShared<kConfig>& shared,
                             const int (&stages)[kConfig.part_sets],
                             const BlockFactors (&factors)[kConfig.part_sets],
                             float (&sums)[kConfig.tile_n / 2]) {
  cute::warpgroup_wait<kConfig.part_sets - 1 - kAt>();
  release<kConfig>(shared, stages[kAt]);
  promoted.finish_set(kAt, factors[kAt], sums);
  if constexpr (kAt + 1 < kConfig.part_sets) {
    finish_group<kConfig, kAt + 1>(promoted, shared, stages, factors, sums);
  }
}

template <TileConfig kConfig>
__device__ void sum_grouped(int k_blocks, TileShared<kConfig>& shared, int consumer, int row,
                            int second_group, RingPosition<kConfig.stages>& at,
                            float (&sums)[kConfig.tile_n / 2]) {
  constexpr int kGroup = kConfig.part_sets;
  PromotedSums<kConfig> promoted{
      .shared = shared, .consumer = consumer, .second_group = second_group};
#pragma unroll
  for (int i = 0; i < kConfig.tile_n / 2; ++i) sums[i] = 0.0f;
  int block = 0;
  for (; block + kGroup <= k_blocks; block += kGroup) {
    int stages[kGroup];
    BlockFactors factors[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i, at.advance()) {
      shared.ring.wait_full(at);
      stages[i] = at.stage;
      factors[i] = block_factors<kConfig>(shared, at.stage, row);
      promoted.start_set(i, at.stage);
    }
    finish_group<kConfig>(promoted, shared, stages, factors, sums);
  }
  for (; block < k_blocks; ++block, at.advance()) {
    shared.ring.wait_full(at);
    const BlockFactors factors = block_factors<kConfig>(shared, at.stage, row);
    promoted.start_set(0, at.stage);
    cute::warpgroup_wait<0>();
    release<kConfig>(shared, at.stage);
    promoted.finish_set(0, factors, sums);
  }
}

template <TileConfig kConfig>
__device__ void sum_promoted(int k_blocks, TileShared<kConfig>& shared, int consumer,
                             int row, int second_group,
                             RingPosition<kConfig.stages>& at, float (&sums)[kConfig.tile_n / 2]) {
  if constexpr (kConfig.part_sets > 1 && kConfig.parts() == 1) {
    sum_grouped(k_blocks, shared, consumer, row, second_group, at, sums);
  } else if constexpr (kConfig.part_sets == 2) {
    sum_turns(k_blocks, shared, consumer, row, second_group, at, sums);
  } else if constexpr (kConfig.parts() > 1 || kConfig.order >= 2) {
    sum_parts(k_blocks, shared, consumer, row, second_group, at, sums);
  } else {
    sum_chained(k_blocks, shared, consumer, row, second_group, at, sums);
  }
}

}  // namespace quire::cuda::hopper
