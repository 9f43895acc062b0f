// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/matmul/quantized_kv_epilogue.cuh"
#include "cuda/common/matmul/variants.h"
#include "cuda/sm90/fused_qkv_matmul/launch_tile.cuh"

namespace quire::cuda::sm90::fused_qkv_matmul {

template void launch_tile<CodesN64T64<DType::bf16>>(const TileParams&, const TileLaunch&);
template void launch_tile<CodesN64T64<DType::f16>>(const TileParams&, const TileLaunch&);
template void launch_tile<CodesN64T64<DType::fp8_e4m3, Scaling::blocks>>(const TileParams&,
                                                                         const TileLaunch&);
template void launch_tile<CodesN64T64<DType::fp8_e4m3, Scaling::rows>>(const TileParams&,
                                                                       const TileLaunch&);

}  // namespace quire::cuda::sm90::fused_qkv_matmul
