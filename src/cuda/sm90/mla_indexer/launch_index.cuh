// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/mla_indexer/kernel.cuh"
#include "cuda/sm90/mla_indexer/launch_index.h"

namespace quire::cuda::sm90::mla_indexer {

template <typename Variant> void launch_index(const IndexParams& params, cudaStream_t stream) {
  constexpr int kSharedOfABlock = 227 * 1024;
  using Shared = IndexShared<Variant::kConfig>;
  static_assert(sizeof(Shared) <= kSharedOfABlock);
  launch(index_kernel<Variant>,
         {.grid = dim3(static_cast<unsigned>(params.parts)),
          .block = dim3(IndexConfig::kThreads),
          .shared_bytes = sizeof(Shared)},
         stream, params);
}

}  // namespace quire::cuda::sm90::mla_indexer
