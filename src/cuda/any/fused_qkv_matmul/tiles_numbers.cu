// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/fused_qkv_matmul/tile_operands.cuh"

namespace quire::cuda::any::fused_qkv_matmul {

void launch_tiles_numbers(const GeneralParams& params, cudaStream_t stream) {
  tiles::launch_tiles<TileOperands<WeightFamily::numbers>>(params, stream);
}

}  // namespace quire::cuda::any::fused_qkv_matmul
