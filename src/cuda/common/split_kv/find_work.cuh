// SPDX-License-Identifier: Apache-2.0
// Where a thread block's work begins: a warp adds up the line (split_schedule.h) from the lengths in
// device memory. All lanes get the same answer.
#pragma once

#include "cuda/common/split_kv/work_walk.h"
#include "cuda/common/thread/warp_reduce.cuh"
#include "cuda/common/thread/warp_scan.cuh"

namespace quire::cuda {

inline constexpr unsigned kWholeWarp = 0xffffffff;

__device__ inline SequenceWork warp_broadcast(const SequenceWork& work, int lane) {
  return {.first_token = __shfl_sync(kWholeWarp, work.first_token, lane),
          .tokens = __shfl_sync(kWholeWarp, work.tokens, lane),
          .cached = __shfl_sync(kWholeWarp, work.cached, lane),
          .first_block = __shfl_sync(kWholeWarp, work.first_block, lane),
          .blocks = __shfl_sync(kWholeWarp, work.blocks, lane),
          .items = __shfl_sync(kWholeWarp, work.items, lane)};
}

// Params: anything with a DecodeBatch `batch` and a DecodeSplit `split`.
template <typename Params> __device__ inline int cost_of(const Params& params, int sequence) {
  return sequence < params.batch.size ? sequence_work(params.batch, sequence).cost(params.split)
                                      : 0;
}

template <typename Params> __device__ inline WorkCuts cut_batch(const Params& params) {
  int total = 0;
  for (int sequence = static_cast<int>(threadIdx.x % 32); sequence < params.batch.size;
       sequence += 32) {
    total += cost_of(params, sequence);
  }
  return cut_work(params.split, warp_sum(total));
}

template <typename Params>
__device__ inline LinePlace find_place(const Params& params, int position) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int begin = 0;
  for (int first = 0; first < params.batch.size; first += 32) {
    SequenceWork work;
    if (first + lane < params.batch.size) work = sequence_work(params.batch, first + lane);
    const int cost = work.cost(params.split);
    const int end = begin + sum_up_to_lane(cost, lane);
    const unsigned beyond = __ballot_sync(kWholeWarp, end > position);
    if (beyond != 0) {
      const int found = __ffs(static_cast<int>(beyond)) - 1;
      return {.sequence = first + found,
              .begin = __shfl_sync(kWholeWarp, end - cost, found),
              .work = warp_broadcast(work, found)};
    }
    begin = __shfl_sync(kWholeWarp, end, 31);
  }
  return {.sequence = params.batch.size, .begin = begin};
}

}  // namespace quire::cuda
