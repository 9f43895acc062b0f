// SPDX-License-Identifier: Apache-2.0
// A block computes 64 tokens × 128 columns of Y, 16 of K at a time: both operands are decoded to fp32
// into shared memory, the next step's while this one is multiplied, and a thread sums 8 × 8 outputs.
//
// In shared memory K is the outer axis, so that a thread reads its operands as vectors. A thread
// decodes runs of 8 along K and would scatter them 2 to a bank; the second run of a step has its
// rows exchanged by 16, which spreads a warp's stores over all banks.
//
// `Operands` says how a run of either operand is loaded.
#pragma once

#include "cuda/any/fused_qkv_matmul/store_value.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::fused_qkv_matmul::tiles {

inline constexpr int kTokens = 64;
inline constexpr int kRows = 128;  // of W
inline constexpr int kDepth = 16;
inline constexpr int kThreads = 128;
inline constexpr int kBlocksPerSm = 3;
inline constexpr int kRunsPerRow = kDepth / kRun;
inline constexpr int kLoadRows = kThreads / kRunsPerRow;  // that all threads decode at once

struct Stage {
  float x[kDepth][kTokens];
  float weight[kDepth][kRows];
};

__device__ constexpr int row_in_stage(int row, int run) {
  return row ^ (16 * (run % 2));
}

// One step's runs of a thread, decoded.
template <typename Operands> struct Step {
  float x[kTokens / kLoadRows][kRun];
  float weight[kRows / kLoadRows][kRun];

  __device__ void load(const GeneralParams& params, int first_token, int first_row, int depth) {
    const int row = static_cast<int>(threadIdx.x) / kRunsPerRow;
    const int column = depth + kRun * (static_cast<int>(threadIdx.x) % kRunsPerRow);
#pragma unroll
    for (int i = 0; i < kRows / kLoadRows; ++i) {
      Operands::load_weight(params.weight, first_row + row + i * kLoadRows, column, weight[i]);
    }
#pragma unroll
    for (int i = 0; i < kTokens / kLoadRows; ++i) {
      Operands::load_input(params.x, first_token + row + i * kLoadRows, column, x[i]);
    }
  }

  __device__ void store(Stage& stage) const {
    const int run = static_cast<int>(threadIdx.x) % kRunsPerRow;
    const int row = row_in_stage(static_cast<int>(threadIdx.x) / kRunsPerRow, run);
#pragma unroll
    for (int k = 0; k < kRun; ++k) {
#pragma unroll
      for (int i = 0; i < kRows / kLoadRows; ++i) {
        stage.weight[run * kRun + k][row + i * kLoadRows] = weight[i][k];
      }
#pragma unroll
      for (int i = 0; i < kTokens / kLoadRows; ++i) {
        stage.x[run * kRun + k][row + i * kLoadRows] = x[i][k];
      }
    }
  }
};

// A thread's tokens are 4 · y … + 3 and 32 more, its columns 4 · x … + 3 and 64 more: what a warp
// reads at once lies side by side.
struct ThreadTile {
  int token;
  int column;
  float sums[2 * kFour][2 * kFour] = {};  // [token][column]

  __device__ ThreadTile() {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    token = kFour * (warp / 2 * 4 + lane / 8);
    column = kFour * (warp % 2 * 8 + lane % 8);
  }

  __device__ static int token_of(int token, int i) {
    return token + i % kFour + i / kFour * (kTokens / 2);
  }

  __device__ void multiply(const Stage& stage) {
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      float a[2 * kFour];
      float b[2 * kFour];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row_a = row_in_stage(token + half * kTokens / 2, k / kRun);
        const int row_b = row_in_stage(column + half * kRows / 2, k / kRun);
        reinterpret_cast<float4&>(a[half * kFour]) =
            reinterpret_cast<const float4&>(stage.x[k][row_a]);
        reinterpret_cast<float4&>(b[half * kFour]) =
            reinterpret_cast<const float4&>(stage.weight[k][row_b]);
      }
#pragma unroll
      for (int i = 0; i < 2 * kFour; ++i) {
#pragma unroll
        for (int j = 0; j < 2 * kFour; ++j) sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
      }
    }
  }

  __device__ void store(const GeneralOutputs& outputs, int first_token, int first_row,
                        std::byte* const (&key_rows)[kTokens]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int y_column = first_row + column + half * (kRows / 2);
      float bias[kFour];
#pragma unroll
      for (int j = 0; j < kFour; ++j) bias[j] = bias_of(outputs, y_column + j);
#pragma unroll
      for (int i = 0; i < 2 * kFour; ++i) {
        float v[kFour];
#pragma unroll
        for (int j = 0; j < kFour; ++j) v[j] = sums[i][half * kFour + j] + bias[j];
        const int within = token_of(token, i);
        store_four(outputs, first_token + within, y_column, key_rows[within], v);
      }
    }
  }
};

template <typename Operands>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    general_tiles(const __grid_constant__ GeneralParams params, int token_blocks) {
  __shared__ alignas(16) Stage stages[2];
  __shared__ std::byte* key_rows[kTokens];
  // Blocks that read the same weights follow each other.
  const int first_token = static_cast<int>(blockIdx.x) % token_blocks * kTokens;
  const int first_row = static_cast<int>(blockIdx.x) / token_blocks * kRows;
  for (int i = static_cast<int>(threadIdx.x); i < kTokens; i += kThreads) {
    key_rows[i] = key_row_of(params.outputs, first_token + i);
  }
  ThreadTile tile;
  Step<Operands> step;
  step.load(params, first_token, first_row, 0);
  step.store(stages[0]);
  __syncthreads();
  const int num_steps = (params.weight.columns + kDepth - 1) / kDepth;
  for (int s = 0; s < num_steps; ++s) {
    const bool has_next = s + 1 < num_steps;
    if (has_next) step.load(params, first_token, first_row, (s + 1) * kDepth);
    tile.multiply(stages[s % 2]);
    if (has_next) step.store(stages[(s + 1) % 2]);
    __syncthreads();
  }
  tile.store(params.outputs, first_token, first_row, key_rows);
}

template <typename Operands> void launch_tiles(const GeneralParams& params, cudaStream_t stream) {
  const unsigned token_blocks = num_blocks(params.outputs.tokens, kTokens);
  const unsigned row_blocks = num_blocks(params.outputs.columns, kRows);
  launch(general_tiles<Operands>,
         {.grid = dim3(num_blocks(std::int64_t{token_blocks} * row_blocks, 1)),
          .block = dim3(kThreads)},
         stream, params, static_cast<int>(token_blocks));
}

}  // namespace quire::cuda::any::fused_qkv_matmul::tiles
