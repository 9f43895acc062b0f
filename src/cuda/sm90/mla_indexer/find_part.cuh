// SPDX-License-Identifier: Apache-2.0
// Where a CTA's part of the work list (split_schedule.h) begins: a warp adds it up from the lengths in
// device memory. All lanes get the same answer.
#pragma once

#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/rows/load_once.cuh"
#include "cuda/common/thread/warp_reduce.cuh"
#include "cuda/sm90/mla_indexer/config.h"
#include "cuda/sm90/mla_indexer/params.h"
#include "cuda/sm90/mla_indexer/select.cuh"
#include "cuda/sm90/mla_indexer/split_schedule.h"

namespace quire::cuda::sm90::mla_indexer {

struct ListPart {
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

__device__ inline std::int64_t list_length(const IndexBatch& batch) {
  std::int64_t sum = 0;
  for (int sequence = static_cast<int>(threadIdx.x % 32); sequence < batch.size; sequence += 32) {
    sum += sequence_cost(batch, sequence);
  }
  return warp_sum(sum);
}

__device__ inline ListPart find_part(const IndexBatch& batch, int part, int parts) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t total = list_length(batch);
  // None is empty, and none so small that merging it would cost more than scoring it.
  const std::int64_t most = (total + kLeastPart - 1) / kLeastPart;
  const std::int64_t used = most < parts ? most : parts;
  if (part >= used) return {};
  const EqualParts parts_of_list(total, static_cast<unsigned>(used));
  ListPart found{.begin = parts_of_list.begin(part), .end = parts_of_list.begin(part + 1)};
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

// What one thread does before all others: maps are sent for, barriers made. A barrier of the block follows.
template <typename Shared>
__device__ inline void prepare(const IndexParams& params, Shared& shared) {
  if (threadIdx.x != 0) return;
  prefetch(params.q);
  prefetch(params.keys);
  prefetch(params.key_scales);
  shared.init();
  cutlass::arch::fence_barrier_init();
}

// How many of a row's best keys a part of it is likely to have. Nothing is taken on trust: a guess that
// turns out wrong costs time, never a key.

// Of the keys of `sampled` tiles out of `tiles`, those that the bar is taken from. Of the best top_k the
// sample has `expected` on average; with three deviations more, one row in a thousand turns out to have
// too few as good, and is scored again.
__device__ inline int keys_above_bar(int sampled, int tiles, int top_k) {
  const float expected =
      static_cast<float>(top_k) * static_cast<float>(sampled) / static_cast<float>(tiles);
  const float root = 1.5f + sqrtf(2.25f + expected);
  return static_cast<int>(root * root) + 1;
}

// Of `count` keys of a split, those that the row's best are sought among first: somewhat more than its
// share; all where a merge can hold what the row's splits have.
__device__ inline int keys_of_head(int count, int tiles, int row_tiles, int top_k) {
  const float share = static_cast<float>(tiles) / static_cast<float>(row_tiles);
  if (static_cast<float>(count) <= share * IndexConfig::kMergeCodes) return count;
  const float expected = share * static_cast<float>(top_k);
  return min(count, static_cast<int>(expected + 4.0f * sqrtf(expected)) + 8);
}

}  // namespace quire::cuda::sm90::mla_indexer
