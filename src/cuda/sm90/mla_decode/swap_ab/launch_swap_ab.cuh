// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/mla_decode/launch_attend.h"
#include "cuda/sm90/mla_decode/swap_ab/kernel.cuh"
#include "cuda/sm90/mla_decode/variants.h"

namespace quire::cuda::sm90::mla_decode {

template <typename Variant>
void launch_swap_ab(const MlaDecodeParams& params, cudaStream_t stream) {
  using Shared = SwapAbShared<Variant::kConfig>;
  static_assert(sizeof(Shared) <= 227 * 1024);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(params.split.blocks)),
                          .block = dim3(SwapAbConfig::kThreads),
                          .shared_bytes = sizeof(Shared)};
  launch(mla_decode_swap_ab_kernel<Variant>, shape, stream, params);
}

}  // namespace quire::cuda::sm90::mla_decode
