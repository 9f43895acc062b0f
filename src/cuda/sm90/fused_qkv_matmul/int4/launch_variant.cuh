// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/fused_qkv_matmul/int4/kernel.cuh"
#include "cuda/sm90/fused_qkv_matmul/int4/launch_variant.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

template <typename Variant>
void launch_int4(const Int4Params& params, const Int4Grid& grid, cudaStream_t stream) {
  constexpr Int4Config kConfig = Variant::kConfig;
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(grid.columns), static_cast<unsigned>(grid.tokens)),
      .block = dim3(kConfig.threads()),
      .shared_bytes = sizeof(Int4Shared<kConfig>),
      .overlaps_previous = params.overlaps_previous};
  launch(int4_kernel<Variant>, shape, stream, params);
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
