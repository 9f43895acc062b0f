// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/fused_qkv_matmul/int4/few_tokens/kernel.cuh"
#include "cuda/sm90/fused_qkv_matmul/int4/few_tokens/launch_few.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

template <typename Variant>
void launch_few_tokens(const FewTokensParams& params, const FewTokensLaunch& where) {
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(where.blocks)),
      .block = dim3(static_cast<unsigned>(32 * (where.warps + kOtherWarps))),
      .shared_bytes = sizeof(FewTokensShared<Variant::kConfig>) +
                      static_cast<std::size_t>(params.stages) * params.stage_bytes,
      .overlaps_previous = params.product.overlaps_previous};
  launch(few_tokens_kernel<Variant>, shape, where.stream, params);
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
