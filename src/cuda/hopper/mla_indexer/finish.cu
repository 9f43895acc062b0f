// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/mla_indexer/finish.h"

#include "cuda/hopper/mla_indexer/merge_row.cuh"
#include "cuda/hopper/mla_indexer/unscored_rows.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

// Thread blocks [0, merges · block_tokens · cluster) merge, those behind them write unscored rows.
__global__ void __launch_bounds__(kMergeThreads, 1)
    finish_kernel(const __grid_constant__ IndexParams params, int merges) {
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<MergeShared*>(memory);
  cudaGridDependencySynchronize();
  const auto cluster = static_cast<int>(cute::cluster_shape().x);
  const auto group = static_cast<int>(blockIdx.x) / cluster;
  const int rows = merges * params.batch.block_tokens;
  if (group < rows) {
    const int rank = static_cast<int>(blockIdx.x) % cluster;
    RowMerge(params, shared, rank, cluster)
        .run(group / params.batch.block_tokens, group % params.batch.block_tokens);
  } else {
    constexpr int kWarps = kMergeThreads / 32;
    const auto first = static_cast<int>(blockIdx.x) - rows * cluster;
    const auto blocks = static_cast<int>(gridDim.x) - rows * cluster;
    write_unscored_rows(params, first * kWarps + static_cast<int>(threadIdx.x) / 32,
                        blocks * kWarps);
  }
}

// More than eight thread blocks, which every GPU of this kind can place.
void allow_large_clusters() {
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(finish_kernel),
                             cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
        "cudaFuncSetAttribute");
}

}  // namespace

void launch_finish(const IndexParams& params, const FinishLaunch& where) {
  const int mergers = where.merges * params.batch.block_tokens * where.cluster;
  // A warp to a row; enough to fill the GPU a few times over are enough.
  constexpr int kMostWriters = 264;
  const int wanted = (params.batch.tokens * 32 + kMergeThreads - 1) / kMergeThreads;
  const int writers = wanted < kMostWriters ? wanted : kMostWriters;
  const int rounded = (writers + where.cluster - 1) / where.cluster * where.cluster;
  if (where.cluster > 8) allow_large_clusters();
  launch(finish_kernel,
         {.grid = dim3(static_cast<unsigned>(mergers + rounded)),
          .block = dim3(kMergeThreads),
          .cluster = static_cast<unsigned>(where.cluster),
          .shared_bytes = sizeof(MergeShared),
          .overlaps_previous = true},
         where.stream, params, where.merges);
}

}  // namespace quire::cuda::hopper
