// SPDX-License-Identifier: Apache-2.0
// A few long rows, each by a group of CTAs that all run at once: a CTA scores its tiles of
// the row, tells the others the best of them, and when all have done so every one knows which of the row's
// keys are chosen. One launch, and one barrier of the grid.
//
//   warps 0 – 11   score   key tiles by turns of a warpgroup, ranks to shared memory
//   warps 12 – 14  load    key tiles, each a warpgroup's
//   warp 15        load    queries and weights
//   then all of them choose the head, meet the others, and select.
#pragma once

#include <cooperative_groups.h>

#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/mla_indexer/find_part.cuh"
#include "cuda/sm90/mla_indexer/group/own_keys.cuh"
#include "cuda/sm90/mla_indexer/params.h"
#include "cuda/sm90/mla_indexer/select.cuh"
#include "cuda/sm90/mla_indexer/tile_loader.cuh"
#include "cuda/sm90/mla_indexer/write_row.cuh"

namespace quire::cuda::sm90::mla_indexer {

// The best of a row out of the heads of its group's CTAs (own_keys.cuh). Every one of them reads all
// heads and finds the same bound, which is cheaper than to tell each other; then it writes the chosen
// positions of a window of its own. Where all of a head is chosen, keys that are not in it may have to be
// too: then all tell each other what is left from the bound on, and select again.

class HeadSelect {
 public:
  __device__ HeadSelect(const GroupBoard& board, const RowShare& share, int top_k, int capacity,
                        const std::uint64_t* codes, GroupSelectShared& shared)
      : board_(board),
        share_(share),
        shared_(shared),
        pairs_(reinterpret_cast<const uint4*>(codes)),
        first_(static_cast<int>(blockIdx.x) - share.rank),
        top_k_(static_cast<unsigned>(top_k)),
        capacity_(capacity) {}

  // The head that stands at `codes`; what is not in it is below `floor`.
  __device__ void publish(int room, std::uint64_t floor) {
    uint4* out = heads() + share_.rank * room / 2;
    for (int i = team_.thread; i < room / 2; i += kGroupThreads) out[i] = pairs_[i];
    if (team_.thread > 0) return;
    board_.floors[blockIdx.x] = floor;
    if (share_.rank > 0) return;
    board_.arrivals[blockIdx.x] = 0;
    board_.tail_counts[blockIdx.x] = 0;
  }

  // All heads, behind a barrier of the group.
  __device__ void read(int room) {
    num_pairs_ = min(share_.size, share_.tiles) * room / 2;  // others have no keys
    const uint4* in = heads();
#pragma unroll
    for (int i = 0; i < kMostPairs; ++i) {
      const int at = i * kGroupThreads + team_.thread;
      held_[i] = at < num_pairs_ ? in[at] : uint4{};
    }
    floor_ = team_.thread < share_.size ? board_.floors[first_ + team_.thread] : 0;
  }

  // The code from which on the best are. `limits`: ranks between which that is likely to be.
  __device__ std::uint64_t find(const RankLimits& limits) {
    const ScoreBuckets buckets(limits);
    Buckets& bins = shared_.select.bins[0];
    unsigned valid = 0;
    for_each([&](std::uint32_t rank, std::uint32_t) {
      valid += rank != kAbsentRank ? 1 : 0;
      atomicAdd(&bins[spread(static_cast<int>(buckets.of(rank)))], 1u);
    });
    add(valid, shared_.valid);
    team_.sync();
    if (shared_.valid <= top_k_) return kAnyCode;
    if (buckets.are_any) {
      find_bucket(team_, bins, top_k_, shared_.select);
      const auto [bucket, greater, count] = shared_.select.found;
      if (bucket > 0 && count <= static_cast<unsigned>(kMostCandidates)) {
        return compare(buckets, bucket, top_k_ - greater);
      }
    }
    return find_exactly();
  }

  // True: there may be keys from `bound` on that no head has. Now all of them are known. The answer is the same
  // in all CTAs of the group, whose own codes are in the head from `floor` on.
  __device__ bool take_tails(OwnKeys& keys, std::uint64_t bound, std::uint64_t floor) {
    if (!team_.any(floor_ > bound)) return false;
    if (team_.thread == 0) shared_.collected = 0;
    team_.sync();
    keys.collect(bound, floor, 0, nullptr);
    team_.sync();
    if (team_.thread == 0) {
      shared_.tail_place = atomicAdd(board_.tail_counts + first_, shared_.collected);
      shared_.collected = 0;
    }
    team_.sync();
    keys.collect(bound, floor, capacity_, tails() + shared_.tail_place);
    team_.sync();
    shared_.clear();
    sync_group();
    num_tails_ = static_cast<int>(board_.tail_counts[first_]);
    floor_ = 0;
    return true;
  }

  __device__ void write(std::uint64_t bound, std::int32_t* out) {
    const int window = (share_.tiles + share_.size - 1) / share_.size * kIndexTileKeys;
    const auto origin = static_cast<unsigned>(share_.rank * window);
    unsigned before = 0;
    for_each([&](std::uint32_t rank, std::uint32_t position) {
      const bool is_chosen = code_of(rank, position) >= bound;
      before += is_chosen && position < origin ? 1 : 0;
      const unsigned place = position - origin;
      if (is_chosen && place < static_cast<unsigned>(window)) {
        atomicOr(&shared_.window[place / 32], 1u << (place % 32));
      }
    });
    add(before, shared_.before);
    team_.sync();
    write_window(window / 32, static_cast<int>(origin), out);
    if (share_.rank > 0) return;
    for (unsigned i = shared_.valid + team_.thread; i < top_k_; i += kGroupThreads) out[i] = -1;
  }

 private:
  static constexpr int kMostPairs = GroupBoard::kMostCodes / 2 / kGroupThreads;
  static constexpr int kTailBatch = 4;

  // Of the group.
  __device__ uint4* heads() const {
    return reinterpret_cast<uint4*>(board_.heads + std::int64_t{first_} * GroupBoard::kMostHead);
  }
  __device__ std::uint64_t* tails() const {
    return board_.tails + std::int64_t{first_} * capacity_;
  }

  __device__ void add(unsigned value, unsigned& sum) const {
    value = __reduce_add_sync(kWholeWarp, value);
    if (team_.lane() == 0 && value > 0) atomicAdd(&sum, value);
  }

  // A thread's codes, as rank and position; kAbsentRank where there is none.
  template <typename Visit> __device__ void for_each(const Visit& visit) const {
#pragma unroll
    for (int i = 0; i < kMostPairs; ++i) {
      if (i * kGroupThreads >= num_pairs_) break;
      visit(held_[i].y, ~held_[i].x);
      visit(held_[i].w, ~held_[i].z);
    }
#pragma unroll 1
    for (int first = team_.thread; first < num_tails_; first += kTailBatch * kGroupThreads) {
      std::uint64_t codes[kTailBatch];  // read before the first is shown
#pragma unroll
      for (int i = 0; i < kTailBatch; ++i) {
        const int at = first + i * kGroupThreads;
        codes[i] = at < num_tails_ ? tails()[at] : 0;
      }
#pragma unroll
      for (const std::uint64_t code : codes) {
        visit(static_cast<std::uint32_t>(code >> 32), position_of(code));
      }
    }
  }
  struct Codes {
    const HeadSelect* select;

    template <typename Visit> __device__ void operator()(const Visit& visit) const {
      select->for_each(visit);
    }
  };

  __device__ std::uint64_t compare(const ScoreBuckets& buckets, unsigned bucket, unsigned wanted) {
    for_each([&](std::uint32_t rank, std::uint32_t position) {
      if (buckets.of(rank) == bucket) {
        shared_.candidates[atomicAdd(&shared_.num_candidates, 1u)] = code_of(rank, position);
      }
    });
    team_.sync();
    return compare_codes(team_, shared_.candidates, static_cast<int>(shared_.num_candidates),
                         wanted, shared_.bound);
  }

  // Of any scores.
  __device__ std::uint64_t find_exactly() {
    RankLimits own;
    for_each([&](std::uint32_t rank, std::uint32_t) {
      own.least = min(own.least, rank == kAbsentRank ? own.least : rank);
      own.greatest = max(own.greatest, rank);
    });
    own.least = __reduce_min_sync(kWholeWarp, own.least);
    own.greatest = __reduce_max_sync(kWholeWarp, own.greatest);
    if (team_.lane() == 0) {
      atomicMin(&shared_.limits.least, own.least);
      atomicMax(&shared_.limits.greatest, own.greatest);
    }
    clear_buckets(team_, shared_.select.bins[0]);
    team_.sync();
    return find_bound(team_, Codes{this}, shared_.limits, top_k_, shared_.select);
  }

  __device__ void sync_group() {
    team_.sync();
    if (team_.thread == 0) {
      std::uint32_t* arrivals = board_.arrivals + first_;
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrivals) : "memory");
      std::uint32_t count = 0;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(count)
                     : "l"(arrivals)
                     : "memory");
      } while (count != static_cast<std::uint32_t>(share_.size));
    }
    team_.sync();
  }

  // A lane takes a word of 32 positions.
  __device__ void write_window(int words, int origin, std::int32_t* out) const {
    for (int first = 32 * team_.warp(); first < words; first += 32 * GroupTeam::kWarps) {
      unsigned place = 0;
      for (int word = team_.lane(); word < first; word += 32) place += __popc(shared_.window[word]);
      place = __reduce_add_sync(kWholeWarp, place) + shared_.before;
      const int word = first + team_.lane();
      unsigned bits = word < words ? shared_.window[word] : 0;
      const auto count = static_cast<unsigned>(__popc(bits));
      place += sum_up_to_lane(count, team_.lane()) - count;
      for (; bits != 0; bits &= bits - 1) {
        out[place++] = origin + 32 * word + __ffs(static_cast<int>(bits)) - 1;
      }
      __syncwarp();
    }
  }

  const GroupBoard& board_;
  const RowShare& share_;
  GroupSelectShared& shared_;
  const int first_;  // CTA of the group
  const unsigned top_k_;
  const int capacity_;
  const GroupTeam team_{};
  const uint4* pairs_;       // of the head, in shared memory
  uint4 held_[kMostPairs];   // pairs of codes
  int num_pairs_ = 0;        // of all heads
  int num_tails_ = 0;        // codes
  std::uint64_t floor_ = 0;  // of the thread-th CTA of the group
};

template <IndexConfig kConfig>
__device__ inline void score_share(const IndexParams& params, const RowShare& share,
                                   RowLoad<kConfig, GroupShared<kConfig>>& load,
                                   GroupShared<kConfig>& shared) {
  if (warp_in_block() < kFirstLoader) {
    ShareScore<kConfig>(params, share, shared).run();
  } else if (is_loader()) {
    load.run(share);
  } else {
    load_row_queries<kConfig>(params, share.row.token, shared);
  }
  __syncwarp();
}

template <IndexConfig kConfig>
__device__ inline void select_share(const IndexParams& params, const GroupBoard& board,
                                    const RowShare& share, int capacity,
                                    GroupShared<kConfig>& shared) {
  const HeadSize size(params.batch.top_k, min(share.size, share.tiles));
  OwnKeys keys(share, shared.ranks(), shared.select);
  const std::uint64_t begin = keys.choose_head(size, shared.codes());
  const std::uint64_t floor = begin == kAnyCode ? 0 : begin;
  const RankSummary seen = keys.seen();
  const RankLimits limits{.least = max(seen.least, static_cast<std::uint32_t>(begin >> 32)),
                          .greatest = seen.greatest};
  HeadSelect select(board, share, params.batch.top_k, capacity, shared.codes(), shared.select);
  select.publish(size.room, floor);
  clear_buckets(GroupTeam{}, shared.select.select.bins[0]);
  cooperative_groups::this_grid().sync();
  select.read(size.room);
  std::uint64_t bound = kAnyCode;
  do {
    bound = select.find(limits);
  } while (select.take_tails(keys, bound, floor));
  select.write(bound, params.out + share.row.token * params.out_stride);
}

// capacity: keys whose ranks there is room for, a multiple of a tile's.
template <typename Variant>
__global__ void __launch_bounds__(kGroupThreads, 1)
    index_group_kernel(const __grid_constant__ IndexParams params,
                       const __grid_constant__ GroupBoard board, int max_tiles, int capacity) {
  constexpr IndexConfig kConfig = Variant::kConfig;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<GroupShared<kConfig>*>(memory);
  prepare(params, shared);
  const auto parts = static_cast<int>(gridDim.x);
  RowLoad<kConfig, GroupShared<kConfig>> load(params, shared, warp_in_block() % 4);
  const RowShare guessed = guess_group(params.batch, parts);
  if (is_loader()) load.guess(guessed, guessed.row.token);
  const RowShare share = find_group(params.batch, parts, max_tiles);
  if (share.rank != guessed.rank || share.size != guessed.size) load.forget_guess();
  if (share.row.bound <= params.batch.top_k) {
    if (share.rank == 0 && threadIdx.x < 32 && share.row.sequence >= 0) {
      write_unscored_row(params, share.row.token, share.row.sequence, share.row.bound);
    }
    cooperative_groups::this_grid().barrier_arrive();
    return;
  }
  shared.select.clear();
  __syncthreads();
  score_share<kConfig>(params, share, load, shared);
  __syncthreads();
  select_share<kConfig>(params, board, share, capacity, shared);
}

template <typename Variant>
void launch_index_group(const IndexParams& params, const GroupBoard& board, const GroupShape& shape,
                        cudaStream_t stream) {
  constexpr int kSharedOfABlock = 227 * 1024;
  using Shared = GroupShared<Variant::kConfig>;
  static_assert(sizeof(Shared) + kMaxGroupKeys * sizeof(std::uint32_t) <= kSharedOfABlock);
  static_assert(kMaxGroupKeys <= 32 * GroupSelectShared::kWindowWords);
  launch_cooperative(index_group_kernel<Variant>,
                     {.grid = dim3(static_cast<unsigned>(shape.parts)),
                      .block = dim3(kGroupThreads),
                      .shared_bytes = sizeof(Shared) + shape.capacity * sizeof(std::uint32_t)},
                     stream, params, board, shape.max_tiles, shape.capacity);
}

}  // namespace quire::cuda::sm90::mla_indexer
