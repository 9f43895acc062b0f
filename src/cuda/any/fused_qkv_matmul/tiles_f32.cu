// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/fused_qkv_matmul/tiles.cuh"

namespace quire::cuda::any::fused_qkv_matmul {

// Nothing is decoded, so the loads of the next step stay in flight while this one is multiplied.
struct F32Operands {
  __device__ static void load_input(const InputOperand& x, int token, int column,
                                    float (&v)[kRun]) {
    if (token >= x.rows) return set_zero(v);
    load_dense(x.data + token * x.stride_bytes, DType::f32, column, x.columns, x.has_vectors, v);
  }
  __device__ static void load_weight(const WeightOperand& w, int row, int column,
                                     float (&v)[kRun]) {
    if (row >= w.rows) return set_zero(v);
    load_dense(w.data + row * w.stride_bytes, DType::f32, column, w.columns, w.has_vectors, v);
  }
};

void launch_tiles_f32(const GeneralParams& params, cudaStream_t stream) {
  tiles::launch_tiles<F32Operands>(params, stream);
}

}  // namespace quire::cuda::any::fused_qkv_matmul
