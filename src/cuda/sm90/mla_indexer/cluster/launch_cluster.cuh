// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/mla_indexer/cluster/kernel.cuh"
#include "cuda/sm90/mla_indexer/cluster/launch_cluster.h"
#include "cuda/sm90/mla_indexer/variants.h"

namespace quire::cuda::sm90::mla_indexer {

template <typename Variant>
void launch_index_cluster(const IndexParams& params, const ClusterShape& shape,
                          cudaStream_t stream) {
  constexpr int kSharedOfABlock = 227 * 1024;
  using Shared = ClusterShared<Variant::kConfig>;
  static_assert(sizeof(Shared) + kMaxClusterKeys * sizeof(std::uint32_t) <= kSharedOfABlock);
  if (shape.size > 8) {
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(index_cluster_kernel<Variant>),
                               cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
          "cudaFuncSetAttribute");
  }
  launch(index_cluster_kernel<Variant>,
         {.grid = dim3(static_cast<unsigned>(params.batch.tokens * shape.size)),
          .block = dim3(kClusterThreads),
          .cluster = static_cast<unsigned>(shape.size),
          .shared_bytes = sizeof(Shared) + shape.capacity * sizeof(std::uint32_t)},
         stream, params, shape.size, shape.capacity);
}

}  // namespace quire::cuda::sm90::mla_indexer
