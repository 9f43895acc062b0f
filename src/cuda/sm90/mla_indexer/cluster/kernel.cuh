// SPDX-License-Identifier: Apache-2.0
// A whole row by one cluster of CTAs: ranks of all its keys stand in the shared memory of every
// CTA, and nothing in device memory but the result.
//
//   warps 0 – 11   score   key tiles by turns of a warpgroup, ranks to all CTAs
//   warps 12 – 14  load    key tiles, each a warpgroup's
//   warp 15        load    queries and weights
//   then all of them select.
#pragma once

#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/mla_indexer/cluster/select_row.cuh"
#include "cuda/sm90/mla_indexer/config.h"
#include "cuda/sm90/mla_indexer/find_part.cuh"
#include "cuda/sm90/mla_indexer/params.h"
#include "cuda/sm90/mla_indexer/tile_loader.cuh"
#include "cuda/sm90/mla_indexer/write_row.cuh"

namespace quire::cuda::sm90::mla_indexer {

// Behind an arrival at the cluster's barrier.
template <IndexConfig kConfig>
__device__ inline void score_row(const IndexParams& params, const RowShare& share,
                                 RowLoad<kConfig, ClusterShared<kConfig>>& load,
                                 ClusterShared<kConfig>& shared) {
  const int warp = warp_in_block();
  if (warp < kFirstLoader) {
    RowScore<kConfig>(params, share, shared).run();
    return;
  }
  if (is_loader()) {
    load.run(share);
  } else {
    load_row_queries<kConfig>(params, share.row.token, shared);
  }
  __syncwarp();
  cluster_of(share).wait();
}

__device__ inline RankSummary join_summaries(const RankSummaries& summaries, int cluster_size) {
  RankSummary all;
  const int count = cluster_size * RankSummaries::kWarps;
#pragma unroll
  for (int first = 0; first < RankSummaries::kMost; first += 32) {
    const int i = first + static_cast<int>(threadIdx.x % 32);
    if (i >= count) continue;
    all.add({.least = summaries.least[i],
             .greatest = summaries.greatest[i],
             .count = summaries.count[i]});
  }
  return all.of_warp();
}

template <IndexConfig kConfig>
__device__ inline void select_row(const IndexParams& params, const RowShare& share,
                                  ClusterShared<kConfig>& shared) {
  const RankSummary all = join_summaries(shared.summaries, share.size);
  RowSelect select({.ranks = shared.ranks(),
                    .end = share.tiles * kIndexTileKeys,
                    .rank = share.rank,
                    .size = share.size},
                   params.batch.top_k, shared.select);
  const std::uint64_t bound = select.find(all);
  select.write(bound, all.count, params.out + share.row.token * params.out_stride);
}

// capacity: keys whose ranks there is room for, a multiple of a tile's.
template <typename Variant>
__global__ void __launch_bounds__(kClusterThreads, 1)
    index_cluster_kernel(const __grid_constant__ IndexParams params, int cluster_size,
                         int capacity) {
  constexpr IndexConfig kConfig = Variant::kConfig;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<ClusterShared<kConfig>*>(memory);
  prepare(params, shared);
  RowShare share{.rank = static_cast<int>(blockIdx.x) % cluster_size, .size = cluster_size};
  const int token = static_cast<int>(blockIdx.x) / cluster_size;
  RowLoad<kConfig, ClusterShared<kConfig>> load(params, shared, warp_in_block() % 4);
  if (is_loader()) load.guess(share, token);
  share.row = find_row(params.batch, token);
  if (share.row.bound <= params.batch.top_k) {
    if (share.rank == 0 && threadIdx.x < 32 && share.row.sequence >= 0) {
      write_unscored_row(params, share.row.token, share.row.sequence, share.row.bound);
    }
    return;
  }
  share.tiles = min(share.row.tiles(), capacity / kIndexTileKeys);
  shared.select.clear();
  __syncthreads();
  cluster_of(share).arrive();
  score_row<kConfig>(params, share, load, shared);
  cluster_of(share).sync();
  select_row<kConfig>(params, share, shared);
}

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
