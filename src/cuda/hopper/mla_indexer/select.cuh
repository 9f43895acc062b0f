// SPDX-License-Identifier: Apache-2.0
// The best `wanted` of a set of codes (rank.cuh), exactly: a radix select of 8 bits a pass, from the
// top, that ends as soon as a bucket is taken whole. Codes differ, so that ties need no rule here.
#pragma once

#include "cuda/hopper/mla_indexer/rank.cuh"
#include "cuda/hopper/mla_indexer/team.cuh"

namespace quire::cuda::hopper {

inline constexpr int kDigits = 256;

struct SelectShared {
  alignas(16) unsigned bins[3][kDigits];  // three, so that one sync a pass is enough
  unsigned warp_sums[32];
};

// Codes from `code` on are taken, and there are as many as were wanted.
struct SelectBound {
  std::uint64_t code = 0;
  bool has_whole_rank = false;  // the lowest rank taken is code's

  // Of keys behind all those that were selected from, only ranks above it matter.
  __device__ std::uint32_t rank_to_beat() const {
    const auto rank = static_cast<std::uint32_t>(code >> 32);
    return has_whole_rank ? rank : rank - 1;
  }
};

struct Bucket {
  unsigned digit;
  unsigned before;  // codes in greater buckets
  unsigned count;
};

// The bucket, from the greatest down, in which the wanted-th code lies. Every warp finds it itself.
__device__ inline Bucket find_bucket(const unsigned (&bins)[kDigits], unsigned wanted) {
  constexpr int kPerLane = kDigits / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const unsigned* own = &bins[kDigits - kPerLane * (lane + 1)];
  unsigned counts[kPerLane];
  unsigned sum = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; i += 4) {
    const uint4 four = *reinterpret_cast<const uint4*>(own + i);
    counts[i] = four.x;
    counts[i + 1] = four.y;
    counts[i + 2] = four.z;
    counts[i + 3] = four.w;
    sum += four.x + four.y + four.z + four.w;
  }
  const unsigned up_to = sum_up_to_lane(sum);
  Bucket bucket{.digit = 0, .before = up_to - sum, .count = 0};
  bool is_found = false;
#pragma unroll
  for (int i = kPerLane - 1; i >= 0; --i) {
    const bool is_here = !is_found && bucket.before + counts[i] >= wanted;
    if (is_here) {
      bucket.digit = static_cast<unsigned>(kDigits - kPerLane * (lane + 1) + i);
      bucket.count = counts[i];
      is_found = true;
    }
    if (!is_found) bucket.before += counts[i];
  }
  const unsigned holders = __ballot_sync(kWholeWarp, is_found);
  const int holder = __ffs(static_cast<int>(holders)) - 1;  // the first: lanes go down the digits
  return {.digit = __shfl_sync(kWholeWarp, bucket.digit, holder),
          .before = __shfl_sync(kWholeWarp, bucket.before, holder),
          .count = __shfl_sync(kWholeWarp, bucket.count, holder)};
}

// One thread block's counts are all there are.
struct OwnCounts {
  template <typename Threads>
  __device__ const unsigned (&gather(const Threads& team, SelectShared& shared,
                                     int pass) const)[kDigits] {
    team.sync();
    return shared.bins[pass % 3];
  }
};

// for_each(visit) shows a thread its own of the codes, more than `wanted` in all. `counts` adds up
// what several thread blocks see.
template <typename Threads, typename ForEach, typename Counts = OwnCounts>
__device__ inline SelectBound find_bound(const Threads& team, const ForEach& for_each,
                                         unsigned wanted, SelectShared& shared,
                                         const Counts& counts = {}) {
  for (int i = team.thread; i < kDigits; i += Threads::kThreads) shared.bins[0][i] = 0;
  team.sync();
  std::uint64_t prefix = 0;
  for (int pass = 0;; ++pass) {
    const int shift = 56 - 8 * pass;
    auto& next = shared.bins[(pass + 1) % 3];
    for (int i = team.thread; i < kDigits; i += Threads::kThreads) next[i] = 0;
    unsigned* bins = shared.bins[pass % 3];
    for_each([&](std::uint64_t code) {
      // The digits above this pass's; a shift by 64 is not one.
      const bool is_candidate = pass == 0 || code >> (shift + 8) == prefix;
      if (is_candidate) atomicAdd(&bins[code >> shift & (kDigits - 1)], 1u);
    });
    const Bucket bucket = find_bucket(counts.gather(team, shared, pass), wanted);
    prefix = prefix << 8 | bucket.digit;
    wanted -= bucket.before;
    if (bucket.count == wanted || shift == 0) {
      return {.code = prefix << shift, .has_whole_rank = shift <= 32};
    }
  }
}

}  // namespace quire::cuda::hopper
