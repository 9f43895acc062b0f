// SPDX-License-Identifier: Apache-2.0
// The best of a set of codes (rank.cuh), exactly. Ranks are counted in buckets between the least and the
// greatest, then those of the bucket in which the last wanted one lies, until that is taken whole; of
// keys with one rank, positions are counted the same way. Scores of one row lie close together, so that
// two passes do where digits from the top would take four.
#pragma once

#include <cstdint>

#include "cuda/common/rows/rank.cuh"
#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda::sm90::mla_indexer {

// Threads that work on one row together.

inline constexpr unsigned kWholeWarp = 0xffffffff;

template <int kNumThreads> struct Team {
  static constexpr int kThreads = kNumThreads;
  static constexpr int kWarps = kNumThreads / 32;

  int thread;   // of the team
  int barrier;  // a name of its own in the CTA

  __device__ void sync() const {
    asm volatile("barrier.cta.sync %0, %1;" ::"r"(barrier), "n"(kNumThreads) : "memory");
  }
  __device__ int lane() const { return thread % 32; }
  __device__ int warp() const { return thread / 32; }
  // True for all of the team if it is for one of them; a sync too.
  __device__ bool any(bool value) const {
    int result = 0;
    asm volatile(
        "{\n.reg .pred p, q;\nsetp.ne.b32 p, %1, 0;\n"
        "barrier.cta.red.or.pred q, %2, %3, p;\nselp.b32 %0, 1, 0, q;\n}"
        : "=r"(result)
        : "r"(static_cast<int>(value)), "r"(barrier), "n"(kNumThreads)
        : "memory");
    return result != 0;
  }
};

// Of an array whose threads read stretches of: a gap behind every 32 words keeps them from meeting in one
// bank.
__device__ constexpr int spread(int index) {
  return index + index / 32;
}

struct TeamSum {
  unsigned before;  // of the threads before this one
  unsigned total;
};

// warp_sums [warps]; free again after the next sync.
template <typename Threads>
__device__ inline TeamSum sum_before(const Threads& team, unsigned value, unsigned* warp_sums) {
  const unsigned inclusive = sum_up_to_lane(value, team.lane());
  if (team.lane() == 31) warp_sums[team.warp()] = inclusive;
  team.sync();
  static_assert(Threads::kWarps <= 32);
  const unsigned other = team.lane() < Threads::kWarps ? warp_sums[team.lane()] : 0;
  const unsigned before = team.lane() < team.warp() ? other : 0;
  return {.before = __reduce_add_sync(kWholeWarp, before) + inclusive - value,
          .total = __reduce_add_sync(kWholeWarp, other)};
}

// All threads of a CTA, by its own barrier. It names no number of threads, so that it is told from those
// of some of them.
template <int kNumThreads> struct BlockTeam {
  static constexpr int kThreads = kNumThreads;
  static constexpr int kWarps = kNumThreads / 32;

  int thread = static_cast<int>(threadIdx.x);

  __device__ void sync() const { __syncthreads(); }
  __device__ int lane() const { return thread % 32; }
  __device__ int warp() const { return thread / 32; }
  // True for all if it is for one of them; a sync too.
  __device__ bool any(bool value) const { return __syncthreads_or(value ? 1 : 0) != 0; }
};

inline constexpr int kBucketBits = 10;
inline constexpr int kBuckets = 1 << kBucketBits;

// Bucket i stands at spread(i), behind the last one what is in none.
using Buckets = unsigned[kBuckets + kBuckets / 32 + 1];

// Sets of buckets by turns of a pass: with two, a pass needs but the sync before its counts are read.
template <int kNumSets> struct SelectShared {
  static constexpr int kSets = kNumSets;

  alignas(16) Buckets bins[kNumSets];
  unsigned warp_sums[32];
  unsigned found[3];  // a bucket, codes in greater ones, codes in it
};

template <typename Threads>
__device__ inline void clear_buckets(const Threads& team, Buckets& bins) {
#pragma unroll 4
  for (int i = team.thread; i < kBuckets + kBuckets / 32; i += Threads::kThreads) bins[i] = 0;
}

// The bucket, from the greatest down, in which the wanted-th code lies.
template <typename Threads, typename Shared>
__device__ inline void find_bucket(const Threads& team, const Buckets& bins, unsigned wanted,
                                   Shared& shared) {
  constexpr int kEach = kBuckets / Threads::kThreads;
  static_assert(32 % kEach == 0, "a stretch has no gap");
  const unsigned* own = bins + spread(kBuckets - (team.thread + 1) * kEach);
  unsigned counts[kEach];
  unsigned sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    counts[i] = own[kEach - 1 - i];
    sum += counts[i];
  }
  unsigned before = sum_before(team, sum, shared.warp_sums).before;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (before < wanted && wanted <= before + counts[i]) {
      shared.found[0] = static_cast<unsigned>(kBuckets - 1 - (team.thread * kEach + i));
      shared.found[1] = before;
      shared.found[2] = counts[i];
    }
    before += counts[i];
  }
  team.sync();
}

// Where the best `wanted` of a set of numbers end.
struct NumberBound {
  unsigned number = 0;
  unsigned left = 0;      // wanted of those from the number on that one pass could not tell apart
  bool is_whole = false;  // all from the number on are wanted
};

// Of more numbers than `wanted`, between the two limits. for_each(visit) shows a thread its own. The
// buckets of the first pass are clear.
template <typename Threads, typename ForEach, typename Shared>
__device__ inline NumberBound find_number(const Threads& team, const ForEach& for_each,
                                          unsigned least, unsigned greatest, unsigned wanted,
                                          Shared& shared) {
  const int bits = 32 - __clz(static_cast<int>(greatest - least));
  int shift = max(0, bits - kBucketBits);
  unsigned span = greatest - least;
#pragma unroll 1
  for (int pass = 0;; ++pass) {
    if constexpr (Shared::kSets > 1) {
      clear_buckets(team, shared.bins[(pass + 1) % Shared::kSets]);
    } else if (pass > 0) {
      clear_buckets(team, shared.bins[0]);
      team.sync();
    }
    Buckets& bins = shared.bins[pass % Shared::kSets];
    for_each([&](unsigned number) {
      const unsigned distance = number - least;  // of lesser numbers beyond any span
      const unsigned bucket = distance <= span ? distance >> shift : kBuckets;
      atomicAdd(&bins[spread(static_cast<int>(bucket))], 1u);
    });
    team.sync();
    find_bucket(team, bins, wanted, shared);
    wanted -= shared.found[1];
    least += shared.found[0] << shift;
    if (shift == 0 || shared.found[2] == wanted) {
      return {.number = least, .left = wanted, .is_whole = shared.found[2] == wanted};
    }
    span = (1u << shift) - 1;
    shift = max(0, shift - kBucketBits);
  }
}

// Limits of ranks.
struct RankLimits {
  std::uint32_t least = 0xffffffff;
  std::uint32_t greatest = 0;
};

// The code from which on there are `wanted`, of more. codes(visit) shows a thread its own as rank and
// position.
template <typename Threads, typename Codes, typename Shared>
__device__ inline std::uint64_t find_bound(const Threads& team, const Codes& codes,
                                           const RankLimits& limits, unsigned wanted,
                                           Shared& shared) {
  const NumberBound rank = find_number(
      team,
      [&](const auto& visit) {
        codes([&](std::uint32_t number, std::uint32_t) { visit(number); });
      },
      limits.least, limits.greatest, wanted, shared);
  if (rank.is_whole) return std::uint64_t{rank.number} << 32;
  clear_buckets(team, shared.bins[0]);  // all have been read
  team.sync();
  const NumberBound tail = find_number(
      team,
      [&](const auto& visit) {
        codes([&](std::uint32_t number, std::uint32_t position) {
          if (number == rank.number) visit(~position);
        });
      },
      0, 0xffffffff, rank.left, shared);
  return std::uint64_t{rank.number} << 32 | tail.number;
}

inline constexpr int kMostCandidates = 128;

// The wanted-th best of a few codes: the one that wanted - 1 are greater than. Ends with a sync behind which
// all read it from `found`.
template <typename Threads>
__device__ inline std::uint64_t compare_codes(const Threads& team, const std::uint64_t* codes,
                                              int count, unsigned wanted, std::uint64_t& found) {
  std::uint64_t others[kMostCandidates / 32];
#pragma unroll
  for (int i = 0; i < kMostCandidates / 32; ++i) {
    const int at = 32 * i + team.lane();
    others[i] = at < count ? codes[at] : 0;
  }
#pragma unroll 1
  for (int own = team.warp(); own < count; own += Threads::kWarps) {
    const std::uint64_t code = codes[own];
    unsigned greater = 0;
    for (const std::uint64_t other : others) {
      greater += __popc(__ballot_sync(kWholeWarp, other > code));
    }
    if (greater == wanted - 1 && team.lane() == 0) found = code;
  }
  team.sync();
  return found;
}

// Of a set of ranks.
struct RankSummary {
  std::uint32_t least = 0xffffffff;
  std::uint32_t greatest = 0;
  unsigned count = 0;

  __device__ void add(const RankSummary& other) {
    least = min(least, other.least);
    greatest = max(greatest, other.greatest);
    count += other.count;
  }
  // Of the sets of a whole warp's lanes.
  __device__ RankSummary of_warp() const {
    return {.least = __reduce_min_sync(kWholeWarp, least),
            .greatest = __reduce_max_sync(kWholeWarp, greatest),
            .count = __reduce_add_sync(kWholeWarp, count)};
  }
};

// Scores between the least and the greatest in buckets of one width. Ranks are no measure of that: one
// score close to zero makes most of them differences of exponents.
struct ScoreBuckets {
  __device__ explicit ScoreBuckets(const RankLimits& limits) : least(score_of(limits.least)) {
    const float range = score_of(limits.greatest) - least;
    per_score = __fdividef(static_cast<float>(kBuckets - 1), range);
    are_any = limits.least > kNanRank && isfinite(range) && isfinite(per_score) && per_score > 0.0f;
  }
  // A greater rank has no lesser one. Absent keys, whose score is a NaN, are in the first.
  __device__ unsigned of(std::uint32_t rank) const {
    const unsigned bucket = __float2uint_rz((score_of(rank) - least) * per_score);
    return min(bucket, static_cast<unsigned>(kBuckets - 1));
  }
  // Close to the least rank of a bucket.
  __device__ std::uint32_t rank_near(unsigned bucket) const {
    return rank_of_number(least + __fdividef(static_cast<float>(bucket), per_score));
  }

  float least;
  float per_score;
  bool are_any;  // false: there are infinities, NaN, or no two scores
};

}  // namespace quire::cuda::sm90::mla_indexer
