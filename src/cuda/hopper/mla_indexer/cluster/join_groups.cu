// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/mla_indexer/cluster/join_groups.h"

#include "cuda/hopper/mla_indexer/cluster/find_row.cuh"
#include "cuda/hopper/mla_indexer/cluster/select_row.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

// Lists follow each other in order of position, so that an index stands for one: the ranks of all, [groups ·
// stride], follow the struct.
struct alignas(16) JoinShared {
  RowSelectShared select;

  __device__ std::uint32_t* ranks() { return reinterpret_cast<std::uint32_t*>(this + 1); }
};

struct JoinSink {
  const std::int32_t* positions;  // of the lists
  std::int32_t* out;

  __device__ void operator()(int place, int index, std::uint32_t) const {
    out[place] = positions[index];
  }
  __device__ void leave_out(int place) const { out[place] = -1; }
};

// A group that has top_k keys says that no worse than its last is among the row's best.
__device__ RankSummary join_lists(const RankSummary* lists, int groups, int top_k) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const RankSummary own = lane < groups ? lists[lane] : RankSummary{};
  const bool is_full = own.count == static_cast<unsigned>(top_k);
  const std::uint32_t least = __reduce_min_sync(kWholeWarp, own.least);
  const std::uint32_t bar = __reduce_max_sync(kWholeWarp, is_full ? own.least : 0);
  return {.least = max(least, bar),
          .greatest = __reduce_max_sync(kWholeWarp, own.greatest),
          .count = __reduce_add_sync(kWholeWarp, own.count)};
}

__global__ void __launch_bounds__(kClusterThreads, 1)
    join_groups_kernel(const __grid_constant__ IndexParams params,
                       const __grid_constant__ GroupLists lists, int writers) {
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<JoinShared*>(memory);
  const Team<kClusterThreads> team{static_cast<int>(threadIdx.x), 0};
  shared.select.clear();
  const int token = static_cast<int>(blockIdx.x) / writers;
  const ClusterRow row = find_row(params.batch, token);
  if (row.bound <= params.batch.top_k) return;
  cudaGridDependencySynchronize();
  const int top_k = params.batch.top_k;
  const int end = lists.groups * lists.stride;
  const std::int64_t first = std::int64_t{token} * end;
#pragma unroll 8
  for (int i = 4 * team.thread; i < end; i += 4 * kClusterThreads) {
    uint4 four = *reinterpret_cast<const uint4*>(lists.ranks + first + i);
    // What rounding up has left.
    if (i % lists.stride + 4 > top_k) {
      const int left = top_k - i % lists.stride;
      four = {left > 0 ? four.x : 0, left > 1 ? four.y : 0, left > 2 ? four.z : 0, 0};
    }
    *reinterpret_cast<uint4*>(shared.ranks() + i) = four;
  }
  const RankSummary all =
      join_lists(lists.summaries + std::int64_t{token} * lists.groups, lists.groups, top_k);
  team.sync();
  RowSelect select({.ranks = shared.ranks(),
                    .end = end,
                    .rank = static_cast<int>(blockIdx.x) % writers,
                    .size = writers},
                   top_k, shared.select);
  const std::uint64_t bound = select.find(all);
  select.write(bound, all.count,
               JoinSink{lists.positions + first, params.out + token * params.out_stride});
}

}  // namespace

void launch_join_groups(const IndexParams& params, const GroupLists& lists, int writers,
                        cudaStream_t stream) {
  launch(join_groups_kernel,
         {.grid = dim3(static_cast<unsigned>(params.batch.tokens * writers)),
          .block = dim3(kClusterThreads),
          .shared_bytes = sizeof(JoinShared) + sizeof(std::uint32_t) *
                                                   static_cast<std::size_t>(lists.groups) *
                                                   static_cast<std::size_t>(lists.stride),
          .overlaps_previous = true},
         stream, params, lists, writers);
}

}  // namespace quire::cuda::hopper
