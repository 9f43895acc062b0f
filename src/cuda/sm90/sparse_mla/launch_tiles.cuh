// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/sparse_mla/kernel.cuh"
#include "cuda/sm90/sparse_mla/launch_tiles.h"

namespace quire::cuda::sm90::sparse_mla {

template <typename Variant>
void launch_sparse_tiles(const SparseParams& params, int blocks, cudaStream_t stream) {
  launch(sparse_kernel<Variant>,
         {.grid = dim3(static_cast<unsigned>(blocks)),
          .block = dim3(SparseConfig::kThreads),
          .cluster = static_cast<unsigned>(Variant::kConfig.blocks),
          .shared_bytes = sizeof(SparseShared<Variant>)},
         stream, params);
}

}  // namespace quire::cuda::sm90::sparse_mla
