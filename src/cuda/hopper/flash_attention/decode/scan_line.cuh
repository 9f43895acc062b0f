// SPDX-License-Identifier: Apache-2.0
// The line of work (work_line.h) added up by the warps that load: a thread per sequence, so that lengths
// of 128 sequences cost one round trip to memory and one prefix sum before the first copy.
#pragma once

#include "cuda/hopper/flash_attention/decode/config.h"
#include "cuda/hopper/flash_attention/decode/find_work.cuh"

namespace quire::cuda::hopper {

struct LineScanShared {
  static constexpr int kWarps = DecodeConfig::kLoadThreads / 32;
  int warp_costs[2][kWarps];
  int warp_longest[2][kWarps];
  // Of the part that is loaded and the one before it, by turns.
  LinePlace places[2];
};

class LineScan {
 public:
  __device__ LineScan(const DecodeBatch& batch, const DecodeSplit& split, LineScanShared& shared,
                      int thread)
      : batch_(batch), split_(split), shared_(shared), thread_(thread) {}

  // What the whole line costs.
  __device__ int add_up() {
    for (int first = 0; first < batch_.size; first += kThreads) scan(first);
    return total_;
  }

  // Key blocks of the longest item.
  __device__ int longest() const { return longest_; }

  // Where `position` < the whole cost lies, for all threads in places[at].
  __device__ void find(int position, int at) {
    total_ = 0;
    for (int first = 0; first < batch_.size && total_ <= position; first += kThreads) scan(first);
    publish(position, at);
  }
  // The same right behind `add_up`.
  __device__ void find_first(int position, int at) {
    if (batch_.size > kThreads) return find(position, at);
    publish(position, at);
  }

  // All threads of the warps that load.
  __device__ static void sync() {
    // Not CUTLASS's: that one wants all lanes at once, and a lane alone traps.
    constexpr unsigned kBarrier = 2;
    __barrier_sync_count(kBarrier, kThreads);
  }

 private:
  static constexpr int kThreads = DecodeConfig::kLoadThreads;

  __device__ void publish(int position, int at) {
    if (position >= begin_ && position < begin_ + work_.cost(split_)) {
      shared_.places[at] = {.sequence = sequence_, .begin = begin_, .work = work_};
    }
    sync();
  }

  // Sequences [first, first + kThreads): this thread's, and where it begins.
  __device__ void scan(int first) {
    sequence_ = first + thread_;
    work_ = {};
    if (sequence_ < batch_.size) work_ = sequence_work(batch_, sequence_);
    const int cost = work_.cost(split_);
    const int up_to = warp_prefix_sum(cost, thread_ % 32);
    const int warp_longest = __reduce_max_sync(kWholeWarp, work_.blocks);
    // Two sets in turn: who is fast writes the next while who is slow still reads the last.
    const int set = first / kThreads % 2;
    if (thread_ % 32 == 31) {
      shared_.warp_costs[set][thread_ / 32] = up_to;
      shared_.warp_longest[set][thread_ / 32] = warp_longest;
    }
    sync();
    begin_ = total_ + up_to - cost;
#pragma unroll
    for (int warp = 0; warp < kThreads / 32; ++warp) {
      const int cost_of_warp = shared_.warp_costs[set][warp];
      if (warp < thread_ / 32) begin_ += cost_of_warp;
      total_ += cost_of_warp;
      longest_ = max(longest_, shared_.warp_longest[set][warp]);
    }
  }

  const DecodeBatch& batch_;
  const DecodeSplit& split_;
  LineScanShared& shared_;
  const int thread_;
  int total_ = 0;
  int longest_ = 0;
  int sequence_ = 0;
  int begin_ = 0;
  SequenceWork work_{};
};

}  // namespace quire::cuda::hopper
