// SPDX-License-Identifier: Apache-2.0
// A warp: 16 weight rows × all tokens, over its steps of K.
#pragma once

#include "cuda/common/mma/warp_mma.cuh"
#include "cuda/sm90/fused_qkv_matmul/int4/few_tokens/config.h"
#include "cuda/sm90/fused_qkv_matmul/int4/few_tokens/shared.cuh"

namespace quire::cuda::sm90::fused_qkv_matmul {

template <FewTokensConfig kConfig, int kGroups> struct QuarterWarp {
  static constexpr int kVec8s = kConfig.tokens / 8;
  static constexpr int kAhead = steps_ahead(kGroups, kConfig.tokens);

  const FewTokensParams& params;
  int part;
  const std::byte* codes;  // the thread's, of the next step that is sent for
  const std::byte* pairs;
  unsigned rows
      [2]
      [kVec8s];  // the row of x that the thread points at, of each unit of its step: offset in a stage
  StepCodes<kGroups> steps[kAhead];
  // Row lane / 4 + 8i, token 8j + 2 (lane % 4) + e in [j][2i + e].
  float totals[kVec8s][4] = {};

  __device__ QuarterWarp(const FewTokensParams& params, int quarter, int part)
      : params(params), part(part) {
    const Int4Order& order = params.product.order;
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const int panel = quarter / 4;
    const std::byte* weight = params.product.weight;
    codes = weight + order.code_offset(panel, part) + (quarter % 4 * 32 + lane) * 16;
    pairs =
        weight + order.side_offset(panel, part) + (quarter % 4 * 8 + lane / 4) * order.pair_bytes();
#pragma unroll
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      if (part + ahead * params.parts < order.steps) send_for(steps[ahead]);
    }
    const int tokens = params.product.outputs.tokens;
#pragma unroll
    for (int unit = 0; unit < 2; ++unit) {
#pragma unroll
      for (int eight = 0; eight < kVec8s; ++eight) {
        const int row = (2 * part + unit) * tokens + min(8 * eight + lane % 8, tokens - 1);
        rows[unit][eight] = row * 128 + ((lane / 8 ^ row % 8) << 4);
      }
    }
  }

  __device__ void send_for(StepCodes<kGroups>& step) {
    const Int4Order& order = params.product.order;
    step.load(codes, pairs, order);
    codes += params.parts * kStepCodeBytes;
    pairs += params.parts * order.side_bytes();
  }

  // `x`: the stage's address in shared memory.
  __device__ void add(const StepCodes<kGroups>& step, unsigned x) {
    constexpr int kWords = 8 / kGroups;  // of a group, 16 columns each
    std::uint32_t numbers[kVec8s][4];    // of x, 32 columns
    float products[kVec8s][4];
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const GroupSides<kConfig.dtype> sides(step.sides[group], params.product.order.scale_dtype);
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        const int word = group * kWords + i;
#pragma unroll
        for (int eight = 0; eight < kVec8s; ++eight) {
          if (word % 2 == 0) {
            load_squares(x + (rows[word / 4][eight] ^ word % 4 / 2 * 64), numbers[eight]);
          }
          if (i == 0) {
#pragma unroll
            for (float& product : products[eight]) product = 0.0f;
          }
        }
        const std::uint32_t words[1] = {step.word(word)};
        std::uint32_t operands[1][4];
        decode_words<kConfig.dtype, 1>(words, sides, operands);
#pragma unroll
        for (int eight = 0; eight < kVec8s; ++eight) {
          add_product<kConfig.dtype>(products[eight], operands[0], numbers[eight][word % 2 * 2],
                                     numbers[eight][word % 2 * 2 + 1]);
        }
      }
      add_group(products, sides);
    }
  }
  __device__ void add_group(const float (&products)[kVec8s][4],
                            const GroupSides<kConfig.dtype>& sides) {
    constexpr float kFactor = CodeFloat<kConfig.dtype>::kFactor;
    const float scales[2] = {sides.scales.x * kFactor, sides.scales.y * kFactor};
#pragma unroll
    for (int eight = 0; eight < kVec8s; ++eight) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        totals[eight][i] = fmaf(scales[i / 2], products[eight][i], totals[eight][i]);
      }
    }
  }

  // By rounds of kAhead steps: registers on their way from memory have no index.
  __device__ void run(FewTokensShared<kConfig>& shared) {
    const int num_steps = params.product.order.steps;
    XPosition at{.stages = params.stages};
#pragma unroll 1
    for (int first = part; first < num_steps; first += kAhead * params.parts) {
#pragma unroll
      for (int ahead = 0; ahead < kAhead; ++ahead) {
        const int step = first + ahead * params.parts;
        if (step >= num_steps) break;
        shared.ring.full[at.stage].wait(at.phase);
        add(steps[ahead], static_cast<unsigned>(
                              __cvta_generic_to_shared(shared.x(at.stage, params.stage_bytes))));
        if (step + kAhead * params.parts < num_steps) send_for(steps[ahead]);
        __syncwarp();
        if (threadIdx.x % 32 == 0) shared.ring.empty[at.stage].arrive();
        at.advance();
      }
    }
  }
};

}  // namespace quire::cuda::sm90::fused_qkv_matmul
