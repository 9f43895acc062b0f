// SPDX-License-Identifier: Apache-2.0
// A whole row by one cluster of thread blocks, or by a few: ranks of all its keys stand in the shared memory
// of every thread block, and nothing in device memory but the result.
//
//   warps 0 – 11   score   key tiles by turns of a warpgroup, ranks to all thread blocks
//   warps 12 – 14  load    key tiles, each a warpgroup's
//   warp 15        load    queries and weights
//   then all of them select.
#pragma once

#include "cuda/hopper/mla_indexer/cluster/load_row.cuh"
#include "cuda/hopper/mla_indexer/cluster/score_row.cuh"
#include "cuda/hopper/mla_indexer/cluster/select_row.cuh"
#include "cuda/hopper/mla_indexer/unscored_rows.cuh"

namespace quire::cuda::hopper {

inline constexpr int kFirstLoader = IndexConfig::kScorers / 32;
__device__ inline bool is_loader() {
  const int warp = warp_in_block();
  return warp >= kFirstLoader && warp < kFirstLoader + IndexConfig::kWarpgroups;
}

// Behind an arrival at the cluster's barrier.
template <IndexConfig kConfig>
__device__ inline void score_row(const IndexParams& params, const RowShare& share,
                                 RowLoad<kConfig>& load, ClusterShared<kConfig>& shared) {
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
  share.cluster.wait();
}

// The result, or a group's list.
struct RowSink {
  std::int32_t* positions;
  std::uint32_t* ranks;  // nullptr: the result
  int first_key;

  __device__ void operator()(int place, int index, std::uint32_t rank) const {
    positions[place] = first_key + index;
    if (ranks != nullptr) ranks[place] = rank;
  }
  __device__ void leave_out(int place) const {
    positions[place] = -1;
    if (ranks != nullptr) ranks[place] = kAbsentRank;
  }
};

__device__ inline RowSink make_sink(const IndexParams& params, const GroupLists& lists,
                                    const RowShare& share, int list) {
  if (lists.groups == 1) {
    return {params.out + share.row.token * params.out_stride, nullptr, share.first_key()};
  }
  const std::int64_t at = std::int64_t{list} * lists.stride;
  return {lists.positions + at, lists.ranks + at, share.first_key()};
}

__device__ inline RankSummary join_summaries(const RankSummaries& summaries, int cluster_size) {
  RankSummary all;
  const int count = cluster_size * RankSummaries::kWarps;
#pragma unroll
  for (int first = 0; first < RankSummaries::kMost; first += 32) {
    const int i = first + static_cast<int>(threadIdx.x % 32);
    if (i >= count) continue;
    all.least = min(all.least, summaries.least[i]);
    all.greatest = max(all.greatest, summaries.greatest[i]);
    all.count += summaries.count[i];
  }
  return {.least = __reduce_min_sync(kWholeWarp, all.least),
          .greatest = __reduce_max_sync(kWholeWarp, all.greatest),
          .count = __reduce_add_sync(kWholeWarp, all.count)};
}

// Of all keys of the cluster.
template <IndexConfig kConfig>
__device__ inline void select_row(const IndexParams& params, const GroupLists& lists,
                                  const RowShare& share, int list, ClusterShared<kConfig>& shared) {
  const int top_k = params.batch.top_k;
  RankSummary all = join_summaries(shared.summaries, share.cluster.size);
  RowSelect select({.ranks = shared.ranks(),
                    .end = share.tiles * kIndexTileKeys,
                    .rank = share.cluster.rank,
                    .size = share.cluster.size},
                   top_k, shared.select);
  const std::uint64_t bound = select.find(all);
  select.write(bound, all.count, make_sink(params, lists, share, list));
  if (lists.groups > 1 && share.cluster.rank == 0 && threadIdx.x == 0) {
    all.least = max(all.least, static_cast<std::uint32_t>(bound >> 32));
    all.count = min(all.count, static_cast<unsigned>(top_k));
    lists.summaries[list] = all;
  }
}

// capacity: keys of a cluster whose ranks there is room for, a multiple of a tile's.
template <typename Variant>
__global__ void __launch_bounds__(kClusterThreads, 1)
    index_cluster_kernel(const __grid_constant__ IndexParams params,
                         const __grid_constant__ GroupLists lists, int cluster_size, int capacity) {
  constexpr IndexConfig kConfig = Variant::kConfig;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<ClusterShared<kConfig>*>(memory);
  if (threadIdx.x == 0) {
    prefetch(params.q);
    prefetch(params.keys);
    prefetch(params.key_scales);
    shared.init();
    cutlass::arch::fence_barrier_init();
  }
  if (lists.groups > 1) cudaTriggerProgrammaticLaunchCompletion();
  RowShare share{
      .cluster = {.rank = static_cast<int>(blockIdx.x) % cluster_size, .size = cluster_size}};
  const int list = static_cast<int>(blockIdx.x) / cluster_size;
  const int group = list % lists.groups;
  const int token = list / lists.groups;
  RowLoad<kConfig> load(params, shared, warp_in_block() % 4);
  if (lists.groups == 1 && is_loader()) load.guess(share, token);
  share.row = find_row(params.batch, token);
  if (share.row.bound <= params.batch.top_k) {
    if (share.cluster.rank == 0 && group == 0 && threadIdx.x < 32 && share.row.sequence >= 0) {
      write_unscored_row(params, share.row.token, share.row.sequence, share.row.bound);
    }
    return;
  }
  share.take_group(group, lists.groups, capacity);
  shared.select.clear();
  __syncthreads();
  share.cluster.arrive();
  score_row<kConfig>(params, share, load, shared);
  share.cluster.sync();
  select_row<kConfig>(params, lists, share, list, shared);
}

}  // namespace quire::cuda::hopper
