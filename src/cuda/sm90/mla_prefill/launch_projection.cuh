// SPDX-License-Identifier: Apache-2.0
// The tile kernel of fused_qkv_matmul, for chunks that may turn out to be unused.
#pragma once

#include "cuda/common/matmul/kernel.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/mla_prefill/params.h"

namespace quire::cuda::sm90::mla_prefill {

template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), Variant::kConfig.blocks_per_sm)
    projection_kernel(const __grid_constant__ TileParams params, const std::int32_t* live_rows) {
  if (*live_rows <= 0) return;
  run_tiles<Variant::kConfig>(params);
}

template <typename Variant>
void launch_projection(const TileParams& params, const std::int32_t* live_rows,
                       const TileLaunch& where) {
  constexpr TileConfig kConfig = Variant::kConfig;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(where.blocks)),
                          .block = dim3(kConfig.threads()),
                          .cluster = static_cast<unsigned>(kConfig.cluster),
                          .shared_bytes = sizeof(TileShared<kConfig>)};
  launch(projection_kernel<Variant>, shape, where.stream, params, live_rows);
}

}  // namespace quire::cuda::sm90::mla_prefill
