// SPDX-License-Identifier: Apache-2.0
// Blocks of keys in the order in which tiles come to need them (common/prefill_attention/schedule.cuh): sequence by sequence,
// sections of KV heads, and in those from the last keys to the first. For warps that make something
// of all of them ahead of the tiles.
#pragma once

#include "cuda/common/prefill_attention/params.h"
#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda::sm90::flash_attention {

inline constexpr int kWalkedKeys = 128;  // of a block

struct WalkedBlock {
  int sequence;  // -1: no more
  int head;
  int block;
  int end_key;  // of the sequence
};

// Blocks of a sequence of which a query sees any key.
struct SeenBlocks {
  int first;
  int end;  // first, if there is none

  // `blocks`: as many as there is room for.
  __device__ SeenBlocks(const VisibleRange& mask, int position, int tokens, int blocks) {
    const int end_key = position + tokens;
    const int last = min((end_key + kWalkedKeys - 1) / kWalkedKeys, blocks);
    first = mask.of(position, end_key).first / kWalkedKeys;
    end = tokens > 0 && last > first ? last : first;
  }
  __device__ int count() const { return end - first; }
};

// By a whole warp: sequences are searched 32 at a time. Indices must not decrease from call to
// call.
class BlockWalk {
 public:
  // `blocks`: of a sequence's KV head that there is room for.
  __device__ BlockWalk(const PrefillParams& params, int kv_heads, int blocks)
      : params_(params), kv_heads_(kv_heads), blocks_(blocks) {}

  __device__ WalkedBlock find(int index) {
    for (; first_sequence_ < params_.batch; first_sequence_ += 32) {
      const auto lane = static_cast<int>(threadIdx.x % 32);
      const int count = num_blocks(first_sequence_ + lane);
      const int end = blocks_before_ + sum_up_to_lane(count, lane);
      const unsigned later = __ballot_sync(kWarp, index < end);
      if (later != 0) {
        const int found = __ffs(later) - 1;
        return place(first_sequence_ + found, index - __shfl_sync(kWarp, end - count, found));
      }
      blocks_before_ = __shfl_sync(kWarp, end, 31);
    }
    return {.sequence = -1};
  }

 private:
  static constexpr unsigned kWarp = 0xffffffff;

  __device__ int tokens_of(int sequence) const {
    return static_cast<int>(params_.row_offsets[sequence + 1] - params_.row_offsets[sequence]);
  }
  __device__ SeenBlocks seen(int sequence) const {
    return {params_.mask, static_cast<int>(params_.cache_lengths[sequence]), tokens_of(sequence),
            blocks_};
  }
  __device__ int num_blocks(int sequence) const {
    return sequence >= params_.batch ? 0 : seen(sequence).count() * kv_heads_;
  }
  // KV heads whose tiles come together.
  __device__ int section_heads(int num_keys) const {
    const int heads = params_.section_keys / max(num_keys, 1);
    return min(max(heads, 1), kv_heads_);
  }
  __device__ WalkedBlock place(int sequence, int index) const {
    const SeenBlocks blocks = seen(sequence);
    const int end_key = static_cast<int>(params_.cache_lengths[sequence]) + tokens_of(sequence);
    const int width = section_heads(end_key);
    const int section = index / (blocks.count() * width);
    const int section_width = min(width, kv_heads_ - section * width);
    const int within = index - section * blocks.count() * width;
    return {.sequence = sequence,
            .head = section * width + within % section_width,
            .block = blocks.end - 1 - within / section_width,
            .end_key = end_key};
  }

  const PrefillParams& params_;
  const int kv_heads_;
  const int blocks_;
  int first_sequence_ = 0;
  int blocks_before_ = 0;
};

}  // namespace quire::cuda::sm90::flash_attention
