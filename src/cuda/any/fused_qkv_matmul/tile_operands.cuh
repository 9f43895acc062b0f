// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/any/fused_qkv_matmul/load_operands.cuh"
#include "cuda/any/fused_qkv_matmul/tiles.cuh"

namespace quire::cuda::any::fused_qkv_matmul {

// Any x beside weights of one family.
template <WeightFamily kFamily> struct TileOperands {
  static constexpr int kBlocksPerSm = 3;

  __device__ static void load_input(const InputOperand& x, int token, int column,
                                    float (&v)[kRun]) {
    fused_qkv_matmul::load_input(x, token, column, v);
  }
  __device__ static void load_weight(const WeightOperand& w, int row, int column,
                                     float (&v)[kRun]) {
    fused_qkv_matmul::load_weight<kFamily>(w, row, column, v);
  }
};

}  // namespace quire::cuda::any::fused_qkv_matmul
