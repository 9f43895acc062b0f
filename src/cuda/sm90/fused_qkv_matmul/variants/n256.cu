// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/matmul/variants.h"
#include "cuda/sm90/fused_qkv_matmul/launch_tile.cuh"
#include "cuda/sm90/fused_qkv_matmul/launch_tile.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

template void launch_tile<WholeTilesOnly<TileN256<DType::bf16>>>(const TileParams&,
                                                                 const TileLaunch&);
template void launch_tile<WholeTilesOnly<TileN256<DType::f16>>>(const TileParams&,
                                                                const TileLaunch&);
template void launch_tile<WholeTilesOnly<TileN256FastAccum>>(const TileParams&, const TileLaunch&);
template void launch_tile<TileN256<DType::f32>>(const TileParams&, const TileLaunch&);
template void launch_tile<WholeTilesOnly<TileN256<DType::fp8_e4m3, Scaling::blocks>>>(
    const TileParams&, const TileLaunch&);

}  // namespace quire::cuda::sm90::fused_qkv_matmul
