// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/hopper/mla_decode/kernel.cuh"
#include "cuda/hopper/mla_decode/launch_attend.h"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {

template <typename Variant>
void launch_mla_attend(const MlaDecodeParams& params, cudaStream_t stream) {
  using Shared = LatentShared<Variant::kConfig>;
  static_assert(sizeof(Shared) <= 227 * 1024);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(params.split.blocks * LatentConfig::kCluster)),
      .block = dim3(LatentConfig::kThreads + LatentConfig::kLoadThreads),
      .cluster = LatentConfig::kCluster,
      .shared_bytes = sizeof(Shared)};
  launch(mla_decode_kernel<Variant>, shape, stream, params);
}

}  // namespace quire::cuda::hopper
