// SPDX-License-Identifier: Apache-2.0
// The best of ranks that stand in shared memory in order of position. Each of several CTAs that have
// the same ranks finds where the best end, and writes those of its own part.
//
// It runs once on an SM: what it costs is instructions that are not there yet, and steps that wait for each
// other, more than keys. Hence small loops; and one count of all ranks in buckets, which tells all but the
// few of one bucket, and those are compared with each other.
#pragma once

#include <cstdint>

#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/mla_indexer/params.h"
#include "cuda/sm90/mla_indexer/select.cuh"
#include "cuda/sm90/mla_indexer/shared.cuh"
#include "cuda/sm90/mla_indexer/tile_loader.cuh"

namespace quire::cuda::sm90::mla_indexer {

inline constexpr int kClusterThreads = IndexConfig::kScorers + 128;

// Of a selection by a whole CTA (select_row.cuh).
struct RowSelectShared {
  static constexpr int kGroupKeys = 128;  // that a warp looks at together
  static constexpr int kMaxGroups = 264;

  SelectShared<1> select;
  std::uint64_t bound;
  unsigned num_candidates;
  unsigned chosen[kMaxGroups];  // of a group of keys

  // Needs a sync before a selection.
  __device__ void clear() {
    if (threadIdx.x == 0) num_candidates = 0;
    clear_buckets(BlockTeam<kClusterThreads>{}, select.bins[0]);
  }
};

// What scorers have seen, one after another for each of their warps in the cluster.
struct RankSummaries {
  static constexpr int kWarps = IndexConfig::kScorers / 32;
  static constexpr int kMost = kMaxCluster * kWarps;

  std::uint32_t least[kMost];
  std::uint32_t greatest[kMost];
  std::uint32_t count[kMost];
};

// The ranks of a cluster's keys follow it: [capacity], the same in every CTA.
template <IndexConfig kConfig> struct alignas(1024) ClusterShared : RowStages<kConfig> {
  RowSelectShared select;
  RankSummaries summaries;

  // By one thread, before a fence_barrier_init and a barrier.
  __device__ void init() { this->init_stages(); }
  __device__ std::uint32_t* ranks() { return reinterpret_cast<std::uint32_t*>(this + 1); }
};

// The CTAs of a cluster: barriers and stores to each other's shared memory. A kernel that was
// started without a cluster is alone.

struct Cluster {
  int rank = 0;
  int size = 1;

  // By all threads; a wait follows. Nothing written before need be seen by others.
  __device__ void arrive() const {
    if (size > 1) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  }
  __device__ void wait() const {
    if (size > 1) asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
  }
  // What others have stored before is seen behind it.
  __device__ void sync() const {
    if (size > 1) {
      asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
      wait();
    } else {
      __syncthreads();
    }
  }

  // To the same place as the local address, in CTA `to`.
  __device__ void store(std::uint32_t local, int to, std::uint32_t value) const {
    const std::uint32_t place =
        to == rank ? local : address_in_block(local, static_cast<std::uint32_t>(to));
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(place), "r"(value) : "memory");
  }
};

__device__ inline Cluster cluster_of(const RowShare& share) {
  return {.rank = share.rank, .size = share.size};
}

// Which sequence a token is of and how many keys it sees, by a whole warp in one round trip to memory where
// sequences have one new token each.

// All lanes get the same answer.
__device__ inline WholeRow find_row(const IndexBatch& batch, int token) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  // Where it is likely to be; if it is not there, all are gone through.
  int first = max(0, token - 15);
  for (bool is_guess = true;; is_guess = false) {
    const int sequence = first + lane;
    SequenceBlocks work;
    if (sequence < batch.size) work = sequence_blocks(batch, sequence);
    const int index = token - work.first_token;
    const bool has_token = index >= 0 && index < work.tokens;
    const unsigned holders = __ballot_sync(kWholeWarp, has_token);
    if (holders != 0) {
      const int holder = __ffs(static_cast<int>(holders)) - 1;
      const int bound = bound_of(batch, work, index);
      return {.token = token,
              .sequence = first + holder,
              .bound = __shfl_sync(kWholeWarp, bound, holder)};
    }
    first = is_guess ? 0 : first + 32;
    if (first >= batch.size) return {.token = token};
  }
}

struct RankedKeys {
  const std::uint32_t* ranks;  // [end], on a multiple of 16 bytes
  int end;                     // a multiple of 64
  int rank;                    // of the CTA
  int size;                    // CTAs
};

class RowSelect {
 public:
  // `shared` is clear.
  __device__ RowSelect(const RankedKeys& keys, int top_k, RowSelectShared& shared)
      : keys_(keys), top_k_(top_k), shared_(shared) {}

  // The code, of rank and index, from which on the best top_k of `all` are.
  __device__ std::uint64_t find(const RankSummary& all) {
    const auto wanted = static_cast<unsigned>(top_k_);
    if (all.count <= wanted) return kAnyCode;
    const ScoreBuckets buckets(RankLimits{.least = all.least, .greatest = all.greatest});
    if (buckets.are_any) {
      Buckets& bins = shared_.select.bins[0];
      for_each([&](std::uint32_t rank, std::uint32_t) {
        atomicAdd(&bins[spread(static_cast<int>(buckets.of(rank)))], 1u);
      });
      team_.sync();
      find_bucket(team_, bins, wanted, shared_.select);
      const auto [bucket, greater, count] = shared_.select.found;
      if (bucket > 0 && count <= static_cast<unsigned>(kMostCandidates)) {
        return compare_candidates(buckets, bucket, wanted - greater);
      }
      clear_buckets(team_, bins);
      team_.sync();
    }
    return find_bound(team_, Codes{this}, {.least = all.least, .greatest = all.greatest}, wanted,
                      shared_.select);
  }

  // The indices of the chosen to `out`, and -1 to the places behind them. total: of all keys that there are.
  __device__ void write(std::uint64_t bound, unsigned total, std::int32_t* out) {
    const int groups = (keys_.end + kGroup - 1) / kGroup;
#pragma unroll 1
    for (int group = team_.warp(); group < groups; group += kWarps) {
      const unsigned count = __reduce_add_sync(kWholeWarp, __popc(read_chosen(group, bound)));
      if (team_.lane() == 0) shared_.chosen[group] = count;
    }
    team_.sync();
    const int warps = keys_.size * kWarps;
    const int own = keys_.rank * kWarps + team_.warp();
    const int first = groups * own / warps;
    const int end = groups * (own + 1) / warps;
    if (first < end) {
      unsigned place = 0;
      for (int group = team_.lane(); group < first; group += 32) place += shared_.chosen[group];
      place = __reduce_add_sync(kWholeWarp, place);
#pragma unroll 1
      for (int group = first; group < end; ++group) {
        write_group(group, bound, out + place);
        place += shared_.chosen[group];
      }
    }
    if (keys_.rank > 0) return;
    for (int i = static_cast<int>(total) + team_.thread; i < top_k_; i += kClusterThreads) {
      out[i] = -1;
    }
  }

 private:
  static constexpr int kWarps = kClusterThreads / 32;
  static constexpr int kGroup = RowSelectShared::kGroupKeys;

  __device__ uint4 read_ranks(int first) const {
    return first < keys_.end ? *reinterpret_cast<const uint4*>(keys_.ranks + first) : uint4{};
  }

  // Bit i: the i-th of a lane's four keys of a group is chosen.
  __device__ unsigned read_chosen(int group, std::uint64_t bound) const {
    const int first = group * kGroup + 4 * team_.lane();
    const uint4 four = read_ranks(first);
    const std::uint32_t ranks[4] = {four.x, four.y, four.z, four.w};
    unsigned chosen = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool is_chosen = code_of(ranks[i], static_cast<std::uint32_t>(first + i)) >= bound;
      chosen |= (is_chosen ? 1u : 0u) << i;
    }
    return chosen;
  }

  // The thread's, as rank and index.
  template <typename Visit> __device__ void for_each(const Visit& visit) const {
#pragma unroll 1
    for (int first = 4 * team_.thread; first < keys_.end; first += 4 * kClusterThreads) {
      const uint4 ranks = read_ranks(first);
      const auto index = static_cast<std::uint32_t>(first);
      visit(ranks.x, index);
      visit(ranks.y, index + 1);
      visit(ranks.z, index + 2);
      visit(ranks.w, index + 3);
    }
  }
  struct Codes {
    const RowSelect* select;

    template <typename Visit> __device__ void operator()(const Visit& visit) const {
      select->for_each(visit);
    }
  };

  // The wanted-th best of a bucket's few keys.
  __device__ std::uint64_t compare_candidates(const ScoreBuckets& buckets, unsigned bucket,
                                              unsigned wanted) {
    // The counts have been read.
    auto* candidates = reinterpret_cast<std::uint64_t*>(shared_.select.bins[0]);
    static_assert(sizeof(Buckets) >= kMostCandidates * sizeof(std::uint64_t));
    for_each([&](std::uint32_t rank, std::uint32_t index) {
      if (buckets.of(rank) == bucket) {
        candidates[atomicAdd(&shared_.num_candidates, 1u)] = code_of(rank, index);
      }
    });
    team_.sync();
    return compare_codes(team_, candidates, static_cast<int>(shared_.num_candidates), wanted,
                         shared_.bound);
  }

  __device__ void write_group(int group, std::uint64_t bound, std::int32_t* out) const {
    const unsigned chosen = read_chosen(group, bound);
    const unsigned lower = (1u << team_.lane()) - 1u;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out += __popc(__ballot_sync(kWholeWarp, (chosen >> i & 1) != 0) & lower);
    }
    const int first = group * kGroup + 4 * team_.lane();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((chosen >> i & 1) != 0) *out++ = first + i;
    }
  }

  const RankedKeys keys_;
  const int top_k_;
  RowSelectShared& shared_;
  const BlockTeam<kClusterThreads> team_{};
};

// The scorers of a row: three warpgroups take the CTA's tiles by turns, and leave the ranks of its
// keys in all CTAs of the cluster. Ranks cross the cluster once; from then on no CTA waits
// for another.

template <IndexConfig kConfig> class RowScore {
 public:
  __device__ RowScore(const IndexParams& params, const RowShare& share,
                      ClusterShared<kConfig>& shared)
      : share_(share),
        shared_(shared),
        scorer_(params, shared, warpgroup_in_block()),
        ranks_(shared_address(shared.ranks())) {}

  __device__ void run() {
    shared_.queries_full.wait(0);
    __syncwarp();  // keeps reads behind the wait
    scorer_.load_weights(0);
    cluster_of(share_).wait();  // the other CTAs are there
    scorer_.score(0, warpgroup_in_block(), share_.own_tiles(),
                  [this](const typename Scorer::Parts& parts) { leave(scorer_.join(parts)); });
    leave_summary();
  }

 private:
  using Shared = ClusterShared<kConfig>;
  using Scorer = TileScorer<kConfig, Shared>;

  // Two lanes have each result: one stores it in the even CTAs, the other in the odd ones.
  __device__ void leave(const typename Scorer::Score& score) {
    const int key = Scorer::key();
    const int position = static_cast<int>(score.mark.position(key));
    const bool is_seen = position < share_.row.bound && score.mark.is_mapped(key);
    const std::uint32_t rank = is_seen ? rank_of(score.value) : kAbsentRank;
    const auto place = ranks_ + static_cast<std::uint32_t>(position) * 4;
    const Cluster cluster = cluster_of(share_);
    for (int block = Scorer::Sums::is_first() ? 0 : 1; block < cluster.size; block += 2) {
      cluster.store(place, block, rank);
    }
    if (!is_seen) return;
    seen_.add({.least = rank, .greatest = rank, .count = Scorer::Sums::is_first() ? 1u : 0u});
  }

  __device__ void leave_summary() {
    __syncwarp();
    const RankSummary all = seen_.of_warp();
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const Cluster cluster = cluster_of(share_);
    if (lane >= cluster.size) return;
    RankSummaries& summaries = shared_.summaries;
    const int index = cluster.rank * RankSummaries::kWarps + static_cast<int>(threadIdx.x) / 32;
    const auto store = [&](const std::uint32_t& word, std::uint32_t value) {
      cluster.store(shared_address(&word), lane, value);
    };
    store(summaries.least[index], all.least);
    store(summaries.greatest[index], all.greatest);
    store(summaries.count[index], all.count);
  }

  const RowShare& share_;
  Shared& shared_;
  Scorer scorer_;
  const std::uint32_t ranks_;
  RankSummary seen_;
};

}  // namespace quire::cuda::sm90::mla_indexer
