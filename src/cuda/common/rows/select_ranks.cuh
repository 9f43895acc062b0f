// SPDX-License-Identifier: Apache-2.0
// The best of a row of ranks by a whole CTA, exactly: a radix select of 8 bits a pass finds the last rank that is
// taken and how many keys of that rank, then the positions are written in ascending order. A rank of kAbsentRank is
// never taken.
#pragma once

#include <cstdint>

#include "cuda/common/rows/rank.cuh"

namespace quire::cuda {

inline constexpr int kSelectThreads = 256;

struct SelectRanksShared {
  unsigned counts[256];
  unsigned warp_counts[kSelectThreads / 32];
  unsigned bucket;
  unsigned before;  // ranks in greater buckets
};

// Keys above `rank` are all taken, of those that have it the first `ties`.
struct Threshold {
  std::uint32_t rank;
  std::int64_t ties;
};

// The bucket, from the greatest down, in which the wanted-th key lies.
__device__ inline void find_bucket(SelectRanksShared& shared, std::int64_t wanted) {
  if (threadIdx.x != 0) return;
  unsigned before = 0;
  int bucket = 255;
  while (bucket > 0 && before + shared.counts[bucket] < wanted) before += shared.counts[bucket--];
  shared.bucket = static_cast<unsigned>(bucket);
  shared.before = before;
}

// More ranks than `wanted`. Where fewer keys have a page, the threshold is the rank of none, and no
// key of that rank is taken.
template <typename Rank>
__device__ inline Threshold find_threshold(const Rank& rank_of_key, std::int64_t bound,
                                           std::int64_t wanted, SelectRanksShared& shared) {
  std::uint32_t prefix = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    __syncthreads();
    shared.counts[threadIdx.x] = 0;
    __syncthreads();
    for (std::int64_t key = threadIdx.x; key < bound; key += kSelectThreads) {
      const std::uint32_t rank = rank_of_key(key);
      // The bits above this pass's; a shift by 32 is not one.
      const bool is_candidate = shift == 24 || rank >> (shift + 8) == prefix;
      if (is_candidate) atomicAdd(&shared.counts[rank >> shift & 0xffu], 1u);
    }
    __syncthreads();
    find_bucket(shared, wanted);
    __syncthreads();
    prefix = prefix << 8 | shared.bucket;
    wanted -= shared.before;
  }
  return {.rank = prefix, .ties = prefix == kAbsentRank ? 0 : wanted};
}
static_assert(kSelectThreads == 256, "a thread clears a bucket");

struct BlockCount {
  unsigned before;  // flags of the threads before this one
  unsigned total;
};

__device__ inline BlockCount count_flags(bool flag, SelectRanksShared& shared) {
  const unsigned votes = __ballot_sync(0xffffffffu, flag);
  const unsigned warp = threadIdx.x / 32;
  const unsigned lane = threadIdx.x % 32;
  __syncthreads();
  if (lane == 0) shared.warp_counts[warp] = __popc(votes);
  __syncthreads();
  BlockCount count{.before = static_cast<unsigned>(__popc(votes & ((1u << lane) - 1u))),
                   .total = 0};
  for (unsigned w = 0; w < kSelectThreads / 32; ++w) {
    if (w < warp) count.before += shared.warp_counts[w];
    count.total += shared.warp_counts[w];
  }
  return count;
}

// Positions below `bound` for which `rank(position)` is past the threshold, ascending, then -1.
template <typename Rank>
__device__ inline void write_selection(const Rank& rank, std::int64_t bound, Threshold threshold,
                                       std::int64_t top_k, std::int32_t* out,
                                       SelectRanksShared& shared) {
  std::int64_t taken = 0;
  std::int64_t ties = 0;
  for (std::int64_t first = 0; first < bound; first += kSelectThreads) {
    const std::int64_t key = first + threadIdx.x;
    const std::uint32_t own = key < bound ? rank(key) : kAbsentRank;
    const bool is_tie = key < bound && own == threshold.rank;
    const BlockCount tied = count_flags(is_tie, shared);
    const bool is_taken = own > threshold.rank || (is_tie && ties + tied.before < threshold.ties);
    const BlockCount chosen = count_flags(is_taken, shared);
    if (is_taken) out[taken + chosen.before] = static_cast<std::int32_t>(key);
    ties += tied.total;
    taken += chosen.total;
  }
  for (std::int64_t slot = taken + threadIdx.x; slot < top_k; slot += kSelectThreads) {
    out[slot] = -1;
  }
}

}  // namespace quire::cuda
