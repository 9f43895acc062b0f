// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/fused_qkv_matmul/tiles.cuh"

namespace quire::cuda::any::fused_qkv_matmul {

void launch_tiles_groups(const GeneralParams& params, cudaStream_t stream) {
  tiles::launch_tiles<GroupOperands>(params, stream);
}

}  // namespace quire::cuda::any::fused_qkv_matmul
