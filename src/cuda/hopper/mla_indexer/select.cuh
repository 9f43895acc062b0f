// SPDX-License-Identifier: Apache-2.0
// The best of a set of keys, exactly. Ranks are counted in 256 buckets between the least and the
// greatest, then those of the bucket in which the last wanted key lies, until a bucket is taken whole;
// of keys with one rank, positions are counted the same way. Scores of one row lie close together, so
// that two or three passes do where digits from the top would take four.
#pragma once

#include "cuda/hopper/mla_indexer/rank.cuh"
#include "cuda/hopper/mla_indexer/team.cuh"

namespace quire::cuda::hopper {

inline constexpr int kBuckets = 256;

struct SelectShared {
  alignas(16) unsigned bins[3][kBuckets];  // three, so that one sync a pass is enough
  unsigned least[2];                       // of ranks, of positions from the end
  unsigned greatest[2];
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
  unsigned index;
  unsigned before;  // keys in greater buckets
  unsigned count;
};

// The bucket, from the greatest down, in which the wanted-th key lies. Every warp finds it itself.
__device__ inline Bucket find_bucket(const unsigned (&bins)[kBuckets], unsigned wanted, int lane) {
  constexpr int kPerLane = kBuckets / 32;
  const unsigned* own = &bins[kBuckets - kPerLane * (lane + 1)];
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
  const unsigned up_to = sum_up_to_lane(sum, lane);
  Bucket bucket{.index = 0, .before = up_to - sum, .count = 0};
  bool is_found = false;
#pragma unroll
  for (int i = kPerLane - 1; i >= 0; --i) {
    const bool is_here = !is_found && bucket.before + counts[i] >= wanted;
    if (is_here) {
      bucket.index = static_cast<unsigned>(kBuckets - kPerLane * (lane + 1) + i);
      bucket.count = counts[i];
      is_found = true;
    }
    if (!is_found) bucket.before += counts[i];
  }
  const unsigned holders = __ballot_sync(kWholeWarp, is_found);
  const int holder = __ffs(static_cast<int>(holders)) - 1;  // the first: lanes go down the buckets
  return {.index = __shfl_sync(kWholeWarp, bucket.index, holder),
          .before = __shfl_sync(kWholeWarp, bucket.before, holder),
          .count = __shfl_sync(kWholeWarp, bucket.count, holder)};
}

// What several thread blocks count together; this one is alone.
struct OwnCounts {
  template <typename Threads>
  __device__ const unsigned (&sum(const Threads& team, SelectShared& shared, int pass)
                                 const)[kBuckets] {
    team.sync();
    return shared.bins[pass % 3];
  }
  template <typename Threads>
  __device__ unsigned least(const Threads& team, SelectShared& shared, int side) const {
    team.sync();
    return shared.least[side];
  }
  __device__ unsigned greatest(const SelectShared& shared, int side) const {
    return shared.greatest[side];
  }
};

// Numbers origin … origin + span in 256 buckets of 2^shift.
struct BucketRange {
  unsigned origin = 0;
  unsigned span = 0;
  int shift = 0;

  __device__ static BucketRange between(unsigned least, unsigned greatest) {
    const int bits = 32 - __clz(static_cast<int>(greatest - least));
    return {.origin = least, .span = greatest - least, .shift = bits > 8 ? bits - 8 : 0};
  }
  __device__ BucketRange within(unsigned bucket) const {
    return {.origin = origin + (bucket << shift),
            .span = (1u << shift) - 1,
            .shift = shift > 8 ? shift - 8 : 0};
  }
};

template <typename Threads, typename Counts> class Selection {
 public:
  __device__ Selection(const Threads& team, SelectShared& shared, const Counts& counts)
      : team_(team), shared_(shared), counts_(counts) {}

  // The least number that is taken, if numbers from it on are the best `wanted`. Of those equal to it
  // fewer may be wanted than there are. for_each(visit) shows a thread its own.
  template <typename ForEach>
  __device__ unsigned find(const ForEach& for_each, unsigned wanted, int side) {
    clear(0);
    find_limits(for_each, side);
    BucketRange range =
        BucketRange::between(counts_.least(team_, shared_, side), counts_.greatest(shared_, side));
    for (int pass = 0;; ++pass) {
      clear((pass + 1) % 3);
      unsigned* bins = shared_.bins[pass % 3];
      for_each([&](unsigned number) {
        const unsigned distance = number - range.origin;  // of lesser numbers beyond any span
        if (distance <= range.span) atomicAdd(&bins[distance >> range.shift], 1u);
      });
      const Bucket bucket = find_bucket(counts_.sum(team_, shared_, pass), wanted, team_.lane());
      wanted -= bucket.before;
      const bool is_number = range.shift == 0;
      is_exact = bucket.count == wanted;
      if (is_number || is_exact) {
        left = wanted;
        has_number = is_number;
        return range.origin + (bucket.index << range.shift);
      }
      range = range.within(bucket.index);
    }
  }

  bool is_exact = false;    // all from the number on are wanted
  bool has_number = false;  // the number itself is taken
  unsigned left = 0;        // wanted of those that equal it, where not all are

 private:
  __device__ void clear(int set) {
    for (int i = team_.thread; i < kBuckets; i += Threads::kThreads) shared_.bins[set][i] = 0;
  }

  template <typename ForEach> __device__ void find_limits(const ForEach& for_each, int side) {
    if (team_.thread == 0) {
      shared_.least[side] = 0xffffffff;
      shared_.greatest[side] = 0;
    }
    unsigned least = 0xffffffff;
    unsigned greatest = 0;
    for_each([&](unsigned number) {
      least = min(least, number);
      greatest = max(greatest, number);
    });
    least = __reduce_min_sync(kWholeWarp, least);
    greatest = __reduce_max_sync(kWholeWarp, greatest);
    team_.sync();
    if (team_.lane() == 0) {
      atomicMin(&shared_.least[side], least);
      atomicMax(&shared_.greatest[side], greatest);
    }
  }

  const Threads& team_;
  SelectShared& shared_;
  const Counts& counts_;
};

// Among more codes than `wanted`. ranks(visit) shows a thread the ranks of its own, codes(visit) the
// whole codes.
template <typename Threads, typename Ranks, typename Codes, typename Counts = OwnCounts>
__device__ inline SelectBound find_bound(const Threads& team, const Ranks& ranks,
                                         const Codes& codes, unsigned wanted, SelectShared& shared,
                                         const Counts& counts = {}) {
  Selection<Threads, Counts> selection(team, shared, counts);
  const unsigned rank = selection.find(ranks, wanted, 0);
  const auto whole = std::uint64_t{rank} << 32;
  if (selection.is_exact) return {.code = whole, .has_whole_rank = selection.has_number};
  team.sync();  // the buckets of ranks are read
  const unsigned tail = selection.find(
      [&](const auto& visit) {
        codes([&](std::uint64_t code) {
          if (code >> 32 == rank) visit(static_cast<unsigned>(code));
        });
      },
      selection.left, 1);
  return {.code = whole | tail, .has_whole_rank = true};
}

}  // namespace quire::cuda::hopper
