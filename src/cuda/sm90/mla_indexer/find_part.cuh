// SPDX-License-Identifier: Apache-2.0
// Where a thread block's part of the line (split_schedule.h) begins: a warp adds it up from the lengths in
// device memory. All lanes get the same answer.
#pragma once

#include "cuda/common/thread/warp_reduce.cuh"
#include "cuda/sm90/mla_indexer/split_schedule.h"
#include "cuda/sm90/mla_indexer/team.cuh"

namespace quire::cuda::sm90::mla_indexer {

struct LinePart {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  int sequence = 0;                 // in which it begins
  std::int64_t sequence_begin = 0;  // where that one does

  __device__ bool is_empty() const { return begin >= end; }
};

// total · part / parts, without the slow division of long numbers where they are none.
struct EqualParts {
  __device__ EqualParts(std::int64_t total, unsigned parts)
      : each(total <= 0xffffffff ? static_cast<unsigned>(total) / parts : total / parts),
        rest(static_cast<unsigned>(total - each * parts)),
        parts(parts) {}
  __device__ std::int64_t begin(int part) const {
    return each * part + rest * static_cast<unsigned>(part) / parts;
  }

  std::int64_t each;
  unsigned rest;
  unsigned parts;
};

__device__ inline std::int64_t sequence_cost(const IndexBatch& batch, int sequence) {
  return sequence < batch.size ? cost_of(batch, sequence_blocks(batch, sequence)) : 0;
}

__device__ inline std::int64_t line_length(const IndexBatch& batch) {
  std::int64_t sum = 0;
  for (int sequence = static_cast<int>(threadIdx.x % 32); sequence < batch.size; sequence += 32) {
    sum += sequence_cost(batch, sequence);
  }
  return warp_sum(sum);
}

__device__ inline LinePart find_part(const IndexBatch& batch, int part, int parts) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t total = line_length(batch);
  // None is empty, and none so small that merging it would cost more than scoring it.
  const std::int64_t most = (total + kLeastPart - 1) / kLeastPart;
  const std::int64_t used = most < parts ? most : parts;
  if (part >= used) return {};
  const EqualParts parts_of_line(total, static_cast<unsigned>(used));
  LinePart found{.begin = parts_of_line.begin(part), .end = parts_of_line.begin(part + 1)};
  std::int64_t begin = 0;
  for (int first = 0; first < batch.size; first += 32) {
    const std::int64_t cost = sequence_cost(batch, first + lane);
    const std::int64_t end = begin + sum_up_to_lane(cost, lane);
    const unsigned beyond = __ballot_sync(kWholeWarp, end > found.begin);
    if (beyond != 0) {
      const int holder = __ffs(static_cast<int>(beyond)) - 1;
      found.sequence = first + holder;
      found.sequence_begin = __shfl_sync(kWholeWarp, end - cost, holder);
      return found;
    }
    begin = __shfl_sync(kWholeWarp, end, 31);
  }
  return {};
}

}  // namespace quire::cuda::sm90::mla_indexer
