// SPDX-License-Identifier: Apache-2.0
// The quarters of blocks that are to be expanded, in the order in which tiles come to need them
// (schedule.cuh): sequence by sequence, sections of KV heads, and in those from the last keys to
// the first.
#pragma once

#include "cuda/hopper/flash_attention/prefill/expanded/block_state.cuh"
#include "cuda/hopper/flash_attention/prefill/expanded/expanded_keys.h"

namespace quire::cuda::hopper {

// K and V of a quarter of a block's keys.
struct BlockQuarter {
  int sequence;  // -1: no more
  int head;
  int block;
  int index;    // of the block's quarters
  int end_key;  // of the sequence
};

// By a whole warp: sequences are searched 32 at a time. Indices must not decrease from call to
// call.
class ExpandWalk {
 public:
  __device__ ExpandWalk(const PrefillParams& params, const ExpandedKeys& keys)
      : params_(params), keys_(keys) {}

  __device__ BlockQuarter find(int index) {
    for (; first_sequence_ < params_.batch; first_sequence_ += 32) {
      const int sequence = first_sequence_ + static_cast<int>(threadIdx.x % 32);
      const int count = num_quarters(sequence);
      const int end = quarters_before_ + inclusive_sum(count);
      const unsigned later = __ballot_sync(kWarp, index < end);
      if (later != 0) {
        const int found = __ffs(later) - 1;
        return place(first_sequence_ + found, index - __shfl_sync(kWarp, end - count, found));
      }
      quarters_before_ = __shfl_sync(kWarp, end, 31);
    }
    return {.sequence = -1};
  }

 private:
  static constexpr unsigned kWarp = 0xffffffff;

  struct Span {
    int first_block;
    int end_block;
    int end_key;
  };
  // Blocks of which a query sees any key.
  __device__ Span span(int sequence) const {
    const auto tokens =
        static_cast<int>(params_.row_offsets[sequence + 1] - params_.row_offsets[sequence]);
    const auto position = static_cast<int>(params_.cache_lengths[sequence]);
    const int end_key = position + tokens;
    const int end = min((end_key + kExpandedKeys - 1) / kExpandedKeys, keys_.blocks);
    const int first = params_.mask.of(position, end_key).first / kExpandedKeys;
    return {.first_block = first,
            .end_block = tokens > 0 && end > first ? end : first,
            .end_key = end_key};
  }
  __device__ int num_quarters(int sequence) const {
    if (sequence >= params_.batch) return 0;
    const Span keys = span(sequence);
    return (keys.end_block - keys.first_block) * keys_.kv_heads * kBlockQuarters;
  }
  __device__ static int inclusive_sum(int value) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(kWarp, value, step);
      if (static_cast<int>(threadIdx.x % 32) >= step) value += other;
    }
    return value;
  }
  // KV heads whose tiles come together.
  __device__ int section_heads(int num_keys) const {
    const int heads = params_.section_keys / max(num_keys, 1);
    return min(max(heads, 1), keys_.kv_heads);
  }
  __device__ BlockQuarter place(int sequence, int index) const {
    const Span keys = span(sequence);
    const int blocks = keys.end_block - keys.first_block;
    const int width = section_heads(keys.end_key);
    const int at = index / kBlockQuarters;
    const int section = at / (blocks * width);
    const int section_width = min(width, keys_.kv_heads - section * width);
    const int within = at - section * blocks * width;
    return {.sequence = sequence,
            .head = section * width + within % section_width,
            .block = keys.end_block - 1 - within / section_width,
            .index = index % kBlockQuarters,
            .end_key = keys.end_key};
  }

  const PrefillParams& params_;
  const ExpandedKeys& keys_;
  int first_sequence_ = 0;
  int quarters_before_ = 0;
};

}  // namespace quire::cuda::hopper
