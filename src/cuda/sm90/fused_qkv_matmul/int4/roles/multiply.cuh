// SPDX-License-Identifier: Apache-2.0
// A warpgroup: 64 weight rows × the block's tokens over its steps of K. The weights are the products'
// first operand and go there from registers, so that they pass through shared memory once, as codes.
#pragma once

#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/fused_qkv_matmul/int4/config.h"
#include "cuda/sm90/fused_qkv_matmul/int4/decode.cuh"
#include "cuda/sm90/fused_qkv_matmul/int4/shared.cuh"

namespace quire::cuda::sm90::fused_qkv_matmul {

// Row 16 (t / 32) + (t % 32) / 4 + 8i, token 8j + 2 (t % 4) + e in [4j + 2i + e].
template <Int4Config kConfig> struct Int4Sums {
  static constexpr int kRegisters = kConfig.tokens / 2;
  using Product = RowWgmma<kConfig.dtype, kConfig.tokens>;

  float total[kRegisters] = {};
  float products[kRegisters];  // of the group at hand

  // kWords products over 16 columns each.
  template <int kWords>
  __device__ void start(const std::uint32_t (*operands)[4], std::uint64_t x, bool starts_group) {
    pin(products);
    cute::warpgroup_arrive();
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      multiply_registers<Product>(operands[i], x + i * (kStepBytes >> 4), products,
                                  starts_group && i == 0);
    }
    cute::warpgroup_commit_batch();
  }
  __device__ void finish(float2 scales) {
    cute::warpgroup_wait<0>();
    pin(products);
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) {
      total[i] = fmaf(i % 4 < 2 ? scales.x : scales.y, products[i], total[i]);
    }
  }
};

// A thread's addresses in a stage of the ring.
struct StepAt {
  unsigned codes;
  unsigned sides;
  std::uint64_t x;  // descriptor

  __device__ uint4 unit(int index) const {
    uint4 value;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(codes + index * kUnitBytes));
    return value;
  }
};

// One step, kGroups groups. A part is decoded while the products of the part before are on their way.
template <Int4Config kConfig, int kGroups>
__device__ inline void add_step(const StepAt& at, const Int4Order& order, Int4Sums<kConfig>& sums) {
  constexpr int kParts = kGroups == 1 ? 2 : kGroups;
  constexpr int kWords = 8 / kParts;
  using Sides = GroupSides<kConfig.dtype>;
  const uint4 codes[2] = {at.unit(0), at.unit(1)};
  const std::uint32_t words[8] = {codes[0].x, codes[0].y, codes[0].z, codes[0].w,
                                  codes[1].x, codes[1].y, codes[1].z, codes[1].w};
  const unsigned group_bytes = kPanelPairs * order.pair_bytes();
  std::uint32_t operands[2][kWords][4];
  Sides sides(at.sides, order.scale_dtype);
  decode_words<kConfig.dtype, kWords>(words, sides, operands[0]);
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const int first = part * kWords;  // of 8 blocks of 16 columns
    const std::uint64_t x = at.x + (first / 4 * kConfig.unit_bytes() + first % 4 * kStepBytes >> 4);
    sums.template start<kWords>(operands[part % 2], x, kGroups > 1 || part == 0);
    const float2 scales = {sides.scales.x * CodeFloat<kConfig.dtype>::kFactor,
                           sides.scales.y * CodeFloat<kConfig.dtype>::kFactor};
    if (part + 1 < kParts) {
      if constexpr (kGroups > 1) {
        sides = Sides(at.sides + (part + 1) * group_bytes, order.scale_dtype);
      }
      decode_words<kConfig.dtype, kWords>(words + first + kWords, sides, operands[(part + 1) % 2]);
    }
    if (kGroups > 1 || part + 1 == kParts) sums.finish(scales);
  }
}

// Where a warpgroup stands: it reads its own step of every kSkip-th chunk.
template <Int4Config kConfig> struct StepReader {
  static constexpr int kSkip = kConfig.k_groups / kConfig.chunk_steps;
  // A stage is always read by the same warpgroups. One that met it in some rounds only could take the
  // parity of a round before for its own, and read a chunk that has not landed.
  static_assert(kConfig.stages % kSkip == 0);

  StepAt first;  // in stage 0
  int stage;
  unsigned phase = 0;

  __device__ StepReader(const Int4Order& order, const Int4Shared<kConfig>& shared, int row_group,
                        int k_group)
      : stage(k_group / kConfig.chunk_steps) {
    const int within = k_group % kConfig.chunk_steps;
    const auto address = [](const void* memory) {
      return static_cast<unsigned>(__cvta_generic_to_shared(memory));
    };
    const auto& chunk = shared.stages[0];
    const unsigned thread = threadIdx.x % 128;
    // Volatile: kept, not computed again in every step.
    asm volatile("add.u32 %0, %1, %2;"
                 : "=r"(first.codes)
                 : "r"(address(chunk.codes[row_group][within])), "r"(thread * 16));
    asm volatile("add.u32 %0, %1, %2;"
                 : "=r"(first.sides)
                 : "r"(address(chunk.sides[row_group]) + within * order.side_bytes()),
                   "r"(thread / 4 * order.pair_bytes()));
    first.x = tile_descriptor(chunk.x + 2 * within * kConfig.unit_bytes());
  }
  __device__ StepAt at() const {
    const unsigned offset = stage * kConfig.stage_bytes();
    return {
        .codes = first.codes + offset, .sides = first.sides + offset, .x = first.x + (offset >> 4)};
  }
  __device__ void advance() {
    stage += kSkip;
    if (stage >= kConfig.stages) {
      stage -= kConfig.stages;
      phase ^= 1;
    }
  }
};

template <Int4Config kConfig, int kGroups>
__device__ void add_steps(const Int4Order& order, Int4Shared<kConfig>& shared, int row_group,
                          int k_group, Int4Sums<kConfig>& sums) {
  StepReader<kConfig> reader(order, shared, row_group, k_group);
  // Not unrolled: a cold start fetches the instructions from far.
#pragma unroll 1
  for (int step = k_group; step < order.steps; step += kConfig.k_groups, reader.advance()) {
    shared.ring.full[reader.stage].wait(reader.phase);
    add_step<kConfig, kGroups>(reader.at(), order, sums);
    __syncwarp();
    if (cute::elect_one_sync()) shared.ring.empty[reader.stage].arrive();
  }
}

template <Int4Config kConfig>
__device__ void multiply_role(const Int4Order& order, Int4Shared<kConfig>& shared, int row_group,
                              int k_group, Int4Sums<kConfig>& sums) {
  switch (order.groups_per_step) {
    case 1:
      return add_steps<kConfig, 1>(order, shared, row_group, k_group, sums);
    case 2:
      return add_steps<kConfig, 2>(order, shared, row_group, k_group, sums);
    default:
      return add_steps<kConfig, 4>(order, shared, row_group, k_group, sums);
  }
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
