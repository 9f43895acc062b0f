// SPDX-License-Identifier: Apache-2.0
// Where a CTA's work begins: a warp adds up the work list (split_schedule.h) from the lengths in
// device memory. All lanes get the same answer.
#pragma once

#include "cuda/common/split_kv/decode_config.h"
#include "cuda/common/split_kv/split_schedule.h"
#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda {

inline constexpr unsigned kWholeWarp = 0xffffffff;

__device__ inline SequenceWork warp_broadcast(const SequenceWork& work, int lane) {
  return {.first_token = __shfl_sync(kWholeWarp, work.first_token, lane),
          .tokens = __shfl_sync(kWholeWarp, work.tokens, lane),
          .num_keys = __shfl_sync(kWholeWarp, work.num_keys, lane),
          .first_block = __shfl_sync(kWholeWarp, work.first_block, lane),
          .blocks = __shfl_sync(kWholeWarp, work.blocks, lane),
          .work_tiles = __shfl_sync(kWholeWarp, work.work_tiles, lane)};
}

// Params: anything with a DecodeBatch `batch` and a SplitSchedule `schedule`.
template <typename Params> __device__ inline int cost_of(const Params& params, int sequence) {
  return sequence < params.batch.size ? sequence_work(params.batch, sequence).cost(params.schedule)
                                      : 0;
}

template <typename Params> __device__ inline WorkCuts cut_batch(const Params& params) {
  int total = 0;
  for (int sequence = static_cast<int>(threadIdx.x % 32); sequence < params.batch.size;
       sequence += 32) {
    total += cost_of(params, sequence);
  }
  return cut_work(params.schedule, warp_sum(total));
}

template <typename Params>
__device__ inline WorkPlace find_place(const Params& params, int position) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int begin = 0;
  for (int first = 0; first < params.batch.size; first += 32) {
    SequenceWork work;
    if (first + lane < params.batch.size) work = sequence_work(params.batch, first + lane);
    const int cost = work.cost(params.schedule);
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

// The work list (split_schedule.h) added up by the warps that load: a thread per sequence, so that lengths
// of 128 sequences cost one round trip to memory and one prefix sum before the first copy.

struct WorkScanShared {
  int warp_costs[2][DecodeConfig::kLoadThreads / 32];
  WorkPlace place;
};

class WorkScan {
 public:
  __device__ WorkScan(const DecodeBatch& batch, const SplitSchedule& schedule,
                      WorkScanShared& shared, int thread)
      : batch_(batch), schedule_(schedule), shared_(shared), thread_(thread) {}

  // What the whole work list costs.
  __device__ int add_up() {
    for (int first = 0; first < batch_.size; first += kThreads) scan(first);
    return total_;
  }

  // Behind `add_up`, once: where `position` < the whole cost lies, for all threads.
  __device__ const WorkPlace& find(int position) {
    if (batch_.size > kThreads) {
      total_ = 0;
      for (int first = 0; total_ <= position; first += kThreads) scan(first);
    }
    if (position >= begin_ && position < begin_ + work_.cost(schedule_)) {
      shared_.place = {.sequence = sequence_, .begin = begin_, .work = work_};
    }
    sync();
    return shared_.place;
  }

  // All threads of the warps that load.
  __device__ static void sync() {
    // Not CUTLASS's: that one wants all lanes at once, and a lane alone traps.
    constexpr unsigned kBarrier = 2;
    __barrier_sync_count(kBarrier, kThreads);
  }

 private:
  static constexpr int kThreads = DecodeConfig::kLoadThreads;

  // Sequences [first, first + kThreads): this thread's, and where it begins.
  __device__ void scan(int first) {
    sequence_ = first + thread_;
    work_ = {};
    if (sequence_ < batch_.size) work_ = sequence_work(batch_, sequence_);
    const int cost = work_.cost(schedule_);
    const int up_to = sum_up_to_lane(cost, thread_ % 32);
    // Two sets in turn: who is fast writes the next while who is slow still reads the last.
    int* warp_costs = shared_.warp_costs[set_];
    if (thread_ % 32 == 31) warp_costs[thread_ / 32] = up_to;
    sync();
    begin_ = total_ + up_to - cost;
#pragma unroll
    for (int warp = 0; warp < kThreads / 32; ++warp) {
      if (warp < thread_ / 32) begin_ += warp_costs[warp];
      total_ += warp_costs[warp];
    }
    set_ ^= 1;
  }

  const DecodeBatch& batch_;
  const SplitSchedule& schedule_;
  WorkScanShared& shared_;
  const int thread_;
  int set_ = 0;  // of warp_costs, for the next scan
  int total_ = 0;
  int sequence_ = 0;
  int begin_ = 0;
  SequenceWork work_{};
};

}  // namespace quire::cuda
