// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/fused_qkv_matmul/launch_tile.cuh"
#include "cuda/hopper/fused_qkv_matmul/variants.h"
#include "cuda/hopper/tile/wgmma_odd_shapes.cuh"

namespace quire::cuda::hopper {

template void launch_tile<TileN160<DType::bf16>>(const TileParams&, const TileLaunch&);

}  // namespace quire::cuda::hopper
