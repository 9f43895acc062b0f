// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/fused_qkv_matmul/tiles.cuh"

namespace quire::cuda::any::fused_qkv_matmul {

void launch_tiles_blocks(const GeneralParams& params, cudaStream_t stream) {
  with_block_operands(params.weight.format, [&](auto operands) {
    tiles::launch_tiles<decltype(operands)>(params, stream);
  });
}

}  // namespace quire::cuda::any::fused_qkv_matmul
