// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/fused_qkv_matmul/tile_operands.cuh"

namespace quire::cuda::any::fused_qkv_matmul {

void launch_tiles_blocks(const GeneralParams& params, cudaStream_t stream) {
  tiles::launch_tiles<TileOperands<WeightFamily::blocks>>(params, stream);
}

}  // namespace quire::cuda::any::fused_qkv_matmul
