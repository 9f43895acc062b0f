// SPDX-License-Identifier: Apache-2.0
// A few long rows, each by a group of CTAs that all run at once: a CTA scores its tiles of
// the row, tells the others the best of them, and when all have done so every one knows which of the row's
// keys are chosen. One launch, and one barrier of the grid.
//
//   warps 0 – 11   score   key tiles by turns of a warpgroup, ranks to shared memory
//   warps 12 – 14  load    key tiles, each a warpgroup's
//   warp 15        load    queries and weights
//   then all of them choose the head, meet the others, and select.
#pragma once

#include <cooperative_groups.h>

#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/mla_indexer/find_part.cuh"
#include "cuda/sm90/mla_indexer/group/own_keys.cuh"
#include "cuda/sm90/mla_indexer/group/params.h"
#include "cuda/sm90/mla_indexer/group/select_heads.cuh"
#include "cuda/sm90/mla_indexer/group/shared.cuh"
#include "cuda/sm90/mla_indexer/load_row.cuh"
#include "cuda/sm90/mla_indexer/write_row.cuh"

namespace quire::cuda::sm90::mla_indexer {

template <IndexConfig kConfig>
__device__ inline void score_share(const IndexParams& params, const RowShare& share,
                                   RowLoad<kConfig, GroupShared<kConfig>>& load,
                                   GroupShared<kConfig>& shared) {
  if (warp_in_block() < kFirstLoader) {
    ShareScore<kConfig>(params, share, shared).run();
  } else if (is_loader()) {
    load.run(share);
  } else {
    load_row_queries<kConfig>(params, share.row.token, shared);
  }
  __syncwarp();
}

template <IndexConfig kConfig>
__device__ inline void select_share(const IndexParams& params, const GroupBoard& board,
                                    const RowShare& share, int capacity,
                                    GroupShared<kConfig>& shared) {
  const HeadSize size(params.batch.top_k, min(share.size, share.tiles));
  OwnKeys keys(share, shared.ranks(), shared.select);
  const std::uint64_t begin = keys.choose_head(size, shared.codes());
  const std::uint64_t floor = begin == kAnyCode ? 0 : begin;
  const RankSummary seen = keys.seen();
  const RankLimits limits{.least = max(seen.least, static_cast<std::uint32_t>(begin >> 32)),
                          .greatest = seen.greatest};
  HeadSelect select(board, share, params.batch.top_k, capacity, shared.codes(), shared.select);
  select.publish(size.room, floor);
  clear_buckets(GroupTeam{}, shared.select.select.bins[0]);
  cooperative_groups::this_grid().sync();
  select.read(size.room);
  std::uint64_t bound = kAnyCode;
  do {
    bound = select.find(limits);
  } while (select.take_tails(keys, bound, floor));
  select.write(bound, params.out + share.row.token * params.out_stride);
}

// capacity: keys whose ranks there is room for, a multiple of a tile's.
template <typename Variant>
__global__ void __launch_bounds__(kGroupThreads, 1)
    index_group_kernel(const __grid_constant__ IndexParams params,
                       const __grid_constant__ GroupBoard board, int max_tiles, int capacity) {
  constexpr IndexConfig kConfig = Variant::kConfig;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<GroupShared<kConfig>*>(memory);
  prepare(params, shared);
  const auto parts = static_cast<int>(gridDim.x);
  RowLoad<kConfig, GroupShared<kConfig>> load(params, shared, warp_in_block() % 4);
  const RowShare guessed = guess_group(params.batch, parts);
  if (is_loader()) load.guess(guessed, guessed.row.token);
  const RowShare share = find_group(params.batch, parts, max_tiles);
  if (share.rank != guessed.rank || share.size != guessed.size) load.forget_guess();
  if (share.row.bound <= params.batch.top_k) {
    if (share.rank == 0 && threadIdx.x < 32 && share.row.sequence >= 0) {
      write_unscored_row(params, share.row.token, share.row.sequence, share.row.bound);
    }
    cooperative_groups::this_grid().barrier_arrive();
    return;
  }
  shared.select.clear();
  __syncthreads();
  score_share<kConfig>(params, share, load, shared);
  __syncthreads();
  select_share<kConfig>(params, board, share, capacity, shared);
}

template <typename Variant>
void launch_index_group(const IndexParams& params, const GroupBoard& board, const GroupShape& shape,
                        cudaStream_t stream) {
  constexpr int kSharedOfABlock = 227 * 1024;
  using Shared = GroupShared<Variant::kConfig>;
  static_assert(sizeof(Shared) + kMaxGroupKeys * sizeof(std::uint32_t) <= kSharedOfABlock);
  static_assert(kMaxGroupKeys <= 32 * GroupSelectShared::kWindowWords);
  launch_cooperative(index_group_kernel<Variant>,
                     {.grid = dim3(static_cast<unsigned>(shape.parts)),
                      .block = dim3(kGroupThreads),
                      .shared_bytes = sizeof(Shared) + shape.capacity * sizeof(std::uint32_t)},
                     stream, params, board, shape.max_tiles, shape.capacity);
}

}  // namespace quire::cuda::sm90::mla_indexer
