// SPDX-License-Identifier: Apache-2.0
// A warpgroup: 64 weight rows × the block's tokens over its steps of K. The weights are the products'
// first operand and go there from registers, so that they pass through shared memory once, as codes.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/int4/code_ring.cuh"
#include "cuda/hopper/fused_qkv_matmul/int4/decode.cuh"
#include "cuda/hopper/tile/block.cuh"

namespace quire::cuda::hopper {

// 64 rows × kN tokens over 16 columns, the weights in registers.
template <DType kDType, int kN>
using Int4Product =
    decltype(cute::SM90::GMMA::rs_op_selector<
             typename CuteElement<kDType>::type, typename CuteElement<kDType>::type, float,
             cute::Shape<cute::Int<kWgmmaRows>, cute::Int<kN>, cute::Int<16>>>());

// Row 16 (t / 32) + (t % 32) / 4 + 8i, token 8j + 2 (t % 4) + e in [4j + 2i + e].
template <Int4Config kConfig> struct Int4Sums {
  static constexpr int kRegisters = kConfig.tokens / 2;
  using Product = Int4Product<kConfig.dtype, kConfig.tokens>;

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

// One step, kGroups groups. A part is decoded while the products of the part before are on their way;
// with many tokens parts are small, as registers are short.
template <Int4Config kConfig, int kGroups>
__device__ inline void add_step(const uint4 (&codes)[2], const StepSides& sides, std::uint64_t x,
                                std::uint64_t unit_stride, std::uint32_t exponent,
                                Int4Sums<kConfig>& sums) {
  constexpr int kLeastParts = kConfig.tokens >= 64 ? 4 : 2;
  constexpr int kParts = kGroups > kLeastParts ? kGroups : kLeastParts;
  constexpr int kPartsInGroup = kParts / kGroups;
  constexpr int kWords = 8 / kParts;
  const std::uint32_t words[8] = {codes[0].x, codes[0].y, codes[0].z, codes[0].w,
                                  codes[1].x, codes[1].y, codes[1].z, codes[1].w};
  std::uint32_t operands[2][kWords][4];
  CodeOffsets<kConfig.dtype> offsets = sides.offsets<kConfig.dtype>(0);
  decode_words<kConfig.dtype, kWords>(words, exponent, offsets, operands[0]);
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const std::uint64_t columns =
        x + part * kWords / 4 * unit_stride + part * kWords % 4 * (kStepBytes >> 4);
    sums.template start<kWords>(operands[part % 2], columns, part % kPartsInGroup == 0);
    if (part + 1 < kParts) {
      // The products before these read the operands that come now.
      if (part % kPartsInGroup > 0) cute::warpgroup_wait<1>();
      if ((part + 1) % kPartsInGroup == 0) {
        offsets = sides.offsets<kConfig.dtype>((part + 1) / kPartsInGroup);
      }
      decode_words<kConfig.dtype, kWords>(words + (part + 1) * kWords, exponent, offsets,
                                          operands[(part + 1) % 2]);
    }
    if ((part + 1) % kPartsInGroup == 0) sums.finish(sides.scales(part / kPartsInGroup));
  }
}

// What a thread needs of the ring, computed once.
template <Int4Config kConfig> struct ChunkReader {
  static constexpr int kSkip = kConfig.k_groups / kConfig.chunk_steps;  // chunks between two steps

  unsigned scale;  // shared-memory addresses in stage 0
  unsigned zero;
  std::uint64_t x;  // descriptor in stage 0
  int stage;
  unsigned phase = 0;

  __device__ ChunkReader(const Int4Params& params, const Int4Shared<kConfig>& shared, int row_group,
                         int k_group)
      : stage(k_group / kConfig.chunk_steps) {
    const int within = k_group % kConfig.chunk_steps;
    const unsigned pair = threadIdx.x % 128 / 4;
    const unsigned side =
        static_cast<unsigned>(__cvta_generic_to_shared(shared.sides[0][row_group])) +
        within * params.order.side_bytes();
    // Volatile: kept, not computed again in every step.
    asm volatile("mov.u32 %0, %1;" : "=r"(scale) : "r"(side + pair * 2 * params.order.scale_bytes));
    asm volatile("mov.u32 %0, %1;"
                 : "=r"(zero)
                 : "r"(side + params.order.zeros_offset() + pair * 2));
    x = tile_descriptor(shared.x[0] + 2 * within * params.box_tokens * kRowBytes);
  }
  __device__ StepSides sides(DType scale_dtype) const {
    const unsigned offset = stage * sizeof(Int4Shared<kConfig>::sides[0]);
    return {.scale = scale + offset, .zero = zero + offset, .scale_dtype = scale_dtype};
  }
  __device__ std::uint64_t tile() const {
    return x + static_cast<std::uint64_t>(stage * (sizeof(Int4Shared<kConfig>::x[0]) >> 4));
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
__device__ void add_steps(const Int4Params& params, Int4Shared<kConfig>& shared, int panel,
                          int row_group, int k_group, Int4Sums<kConfig>& sums) {
  CodeRing<kConfig> ring(params, shared.codes[row_group * kConfig.k_groups + k_group], panel,
                         k_group);
  ChunkReader<kConfig> reader(params, shared, row_group, k_group);
  const auto unit_stride = static_cast<std::uint64_t>(params.box_tokens * kRowBytes >> 4);
#pragma unroll 1
  for (int step = k_group; step < params.order.steps; step += kConfig.k_groups, reader.advance()) {
    uint4 codes[2];
    ring.take(codes);
    shared.ring.full[reader.stage].wait(reader.phase);
    add_step<kConfig, kGroups>(codes, reader.sides(params.scale_dtype), reader.tile(), unit_stride,
                               params.code_exponent, sums);
    ring.refill();
    __syncwarp();
    if (cute::elect_one_sync()) shared.ring.empty[reader.stage].arrive();
  }
}

template <Int4Config kConfig>
__device__ void multiply_role(const Int4Params& params, Int4Shared<kConfig>& shared, int panel,
                              int row_group, int k_group, Int4Sums<kConfig>& sums) {
  switch (params.order.groups_per_step) {
    case 1:
      return add_steps<kConfig, 1>(params, shared, panel, row_group, k_group, sums);
    case 2:
      return add_steps<kConfig, 2>(params, shared, panel, row_group, k_group, sums);
    default:
      return add_steps<kConfig, 4>(params, shared, panel, row_group, k_group, sums);
  }
}

}  // namespace quire::cuda::hopper
